// Products of matrices in memory, in stacks: C = A B + bias.
//
// Launch: one dimension of THREADS threads, those of FRAME, and `room` bytes of shared memory; blocks are tiles of
// C, those below each other first, then slices of k, then members of the stack. It computes
// 2 m n k operations a member. A_KIND and B_KIND say how operands lie: `Along` or `Across` k.

struct Stack {
    int length[3];
    int64_t a[3], b[3];  // elements from member to member
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    KERNEL(product)(const T *a, const T *b, const T *bias, RESULT *c, Stack stack, int64_t a_pitch,
                    int64_t b_pitch, int m, int n, int k, int slices, int slice, int vectors) {
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
    A_KIND<Frame, T> from_a(a, a_pitch, m0, m, last, vectors & 1);
    B_KIND<Frame, T> from_b(b, b_pitch, n0, n, last, vectors & 2);
    multiply_tiles(frame, from_a, from_b, (Frame::Stored *)room, first, last);
    // Slices lie one behind the other, each a whole stack.
    const int64_t members = gridDim.x / (down * right * slices);
    c += (part * members + member) * m * n;
    Rows<T, RESULT> to{c, bias, n, m, n, (vectors & 4) != 0};
    frame.store(to, m0, n0);
}
