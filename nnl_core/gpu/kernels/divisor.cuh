// Division by a number known at launch: by a multiplication and a shift, for n below 2^31.
struct Divisor {
    uint32_t by, factor;
    int shift;
    __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
        return (uint32_t)(((uint64_t)n * factor) >> shift);
    }
    __device__ __forceinline__ uint32_t rest(uint32_t n) const { return n - quotient(n) * by; }
    // Returns the quotient and leaves the rest.
    __device__ __forceinline__ uint32_t split(uint32_t &n) const {
        const uint32_t found = quotient(n);
        n -= found * by;
        return found;
    }
};
