// Vectorised for the instructions that every CPU of the architecture has: SSE2 or NEON.
#define COLLAB_CODEC_PATH baseline
#include "core/codec/table.h"
