// Vectorised for AVX-512 F, BW, DQ and VL (CMakeLists.txt names the flags).
#define COLLAB_CODEC_PATH avx512
#include "core/codec/table.h"
