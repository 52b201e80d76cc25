// The table of kernels, which the stand-in for nvcc appends to the preprocessed source, and how a
// kernel gets its arguments from one buffer, laid out as the driver API asks.
// src/emulator.hpp and src/modules.cpp have the same structures.
#pragma once
extern "C++" {
namespace cuemu {

struct Kernel {
    const char *name;
    void *function;
    void (*call)(void *function, const char *arguments);
    void (*pack)(void **arguments, char *buffer);
    unsigned argument_bytes, max_threads;
};

struct Table {
    const Kernel *kernels;
    int count, version, instrumented;
    void *(*touch_shared)();
};

template <unsigned offset, class... None> struct Layout {
    static constexpr unsigned end = offset;
};
template <unsigned offset, class T, class... Rest> struct Layout<offset, T, Rest...> {
    static constexpr unsigned at = (offset + alignof(T) - 1) / alignof(T) * alignof(T);
    static constexpr unsigned end = Layout<at + sizeof(T), Rest...>::end;
};

template <class T> struct Adapter;
template <class... All> struct Adapter<void(All...)> {
    template <unsigned offset, class... Left> struct Step;
    template <unsigned offset> struct Step<offset> {
        template <class... Values>
        CUEMU_UNCHECKED static void call(void *function, const char *, Values... values) {
            ((void (*)(All...))function)(values...);
        }
        static void pack(void **, char *) {}
    };
    template <unsigned offset, class T, class... Rest> struct Step<offset, T, Rest...> {
        static constexpr unsigned at = Layout<offset, T>::at;
        typedef Step<at + sizeof(T), Rest...> Next;
        template <class... Values>
        CUEMU_UNCHECKED static void call(void *function, const char *buffer, Values... values) {
            T value;
            __builtin_memcpy((void *)&value, buffer + at, sizeof(T));
            Next::call(function, buffer, values..., value);
        }
        static void pack(void **arguments, char *buffer) {
            __builtin_memcpy(buffer + at, *arguments, sizeof(T));
            Next::pack(arguments + 1, buffer);
        }
    };
    CUEMU_RAW static void call(void *function, const char *buffer) {
        Step<0, All...>::call(function, buffer);
    }
    static void pack(void **arguments, char *buffer) { Step<0, All...>::pack(arguments, buffer); }
};

template <class... All> Kernel row(const char *name, void (*function)(All...), unsigned bound) {
    typedef Adapter<void(All...)> This;
    return {name, (void *)function, This::call, This::pack, Layout<0, All...>::end, bound};
}
static inline unsigned bound(unsigned threads = 0, unsigned = 0, unsigned = 0) { return threads; }

// Shared variables are thread-local: touching one makes the copies of this thread exist.
static thread_local char anchor;
CUEMU_RAW static void *touch_shared() { return &anchor; }

} // namespace cuemu
}
