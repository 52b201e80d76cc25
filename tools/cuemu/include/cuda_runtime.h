// Kernels may include it; the emulator needs nothing of it.
#pragma once
