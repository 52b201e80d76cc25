// Sums of exponentials that cannot overflow, found in one pass.

template <class C> INLINE C infinite() { return (C)__longlong_as_double(0x7ff0000000000000ll); }

// The largest element so far, and the sum of exponentials of what all are less than it.
template <class C> struct Falling {
    C top, sum;
    static __device__ Falling nothing() { return {-infinite<C>(), 0}; }
    __device__ void add(C x) {
        if (x == -infinite<C>()) return;
        if (x > top) {
            sum = sum * exp_of(top - x) + exp_of(x - x);  // no number, where x is infinite
            top = x;
        } else {
            sum += exp_of(x - top);
        }
    }
};
struct JoinFalling {
    template <class C> static __device__ Falling<C> of(Falling<C> a, Falling<C> b) {
        if (a.top == b.top) return {a.top, a.sum + b.sum};
        C top = larger(a.top, b.top);
        return {top, a.sum * exp_of(a.top - top) + b.sum * exp_of(b.top - top)};
    }
};
