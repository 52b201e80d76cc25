// Products of matrices in memory, in stacks: C = A B + bias.
//
// Launch: one dimension of THREADS threads, those of FRAME, and `room` bytes of shared memory; blocks are tiles of
// C, those below each other first, then slices of k, then members of the stack. It computes
// 2 m n k operations a member. A_KIND and B_KIND are the loaders; A_ALONG says that A lies along k.

struct Stack {
    int length[3];
    int64_t a[3], b[3];  // elements from member to member
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    KERNEL(product)(const T *a, const T *b, const T *bias, RESULT *c, Stack stack, int a_pitch, int b_pitch,
                    int m, int n, int k, int slices, int slice, bool vector) {
    typedef FRAME Frame;
    extern __shared__ __align__(16) unsigned char room[];
    const int down = (m + Frame::SIDE - 1) / Frame::SIDE, right = (n + Frame::SIDE - 1) / Frame::SIDE;
    unsigned block = blockIdx.x;
    const int m0 = block % down * Frame::SIDE;
    block /= down;
    const int n0 = block % right * Frame::SIDE;
    block /= right;
    const int part = block % slices;
    const unsigned member = block / slices;
    unsigned left = member;
    for (int axis = 2; axis >= 0; axis--) {
        const unsigned place = left % stack.length[axis];
        left /= stack.length[axis];
        a += place * stack.a[axis];
        b += place * stack.b[axis];
    }
    const int first = part * slice, last = min(k, first + slice);
    Frame frame;
    frame.clear();
    typedef Straight<T> Source;
    A_KIND from_a(Source{a, A_ALONG ? a_pitch : 1, A_ALONG ? 1 : a_pitch, m0, m, last});
    B_KIND from_b(Source{b, B_ALONG ? b_pitch : 1, B_ALONG ? 1 : b_pitch, n0, n, last});
    multiply_tiles(frame, from_a, from_b, (Frame::Stored *)room, first, last);
    // Slices lie one behind the other, each a whole stack.
    const int64_t members = gridDim.x / (down * right * slices);
    c += (part * members + member) * m * n;
    Rows<T, RESULT> to{c, bias, n, m, n, vector};
    frame.store(to, m0, n0);
}
