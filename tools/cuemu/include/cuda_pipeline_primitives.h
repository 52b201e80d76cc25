// The same functions as in cuda_pipeline.h.
#pragma once
#include "cuda_pipeline.h"
