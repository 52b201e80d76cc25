// Puts a weight in the order of the product it is used in: (groups, maps, pitch), taps of channels in a
// row, zeros behind them.
//
// A weight in memory has element (group, map, channel, tap) at
// group * by_group + map * by_map + channel * by_channel + sum over axes of (first + j * step).
// Launch: a thread an element of the result; reads and writes the weight once.
struct Order {
    int maps, inner, by_group, by_map, by_channel, first;
    int length[3], step[3];  // of taps, in elements of the weight
};

extern "C" __global__ void KERNEL(ordered)(const T *weight, T *result, const Order order,
                                           Divisor pitch, Divisor taps, int64_t count) {
    FOR_EACH(item, count) {
        uint32_t k = (uint32_t)item;
        const uint32_t row = pitch.split(k);
        T value = narrow<T>(0.f);
        if (k < order.inner) {
            uint32_t tap = k;
            const uint32_t channel = taps.split(tap);
            int64_t at = (int64_t)(row / order.maps) * order.by_group +
                         (int64_t)(row % order.maps) * order.by_map +
                         (int64_t)channel * order.by_channel + order.first;
#pragma unroll
            for (int axis = 2; axis >= 0; axis--) {
                at += tap % order.length[axis] * order.step[axis];
                tap /= order.length[axis];
            }
            value = weight[at];
        }
        result[item] = value;
    }
}
