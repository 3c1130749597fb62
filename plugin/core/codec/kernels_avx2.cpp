// Vectorised for AVX2 (CMakeLists.txt names the flags).
#define COLLAB_CODEC_PATH avx2
#include "core/codec/table.h"
