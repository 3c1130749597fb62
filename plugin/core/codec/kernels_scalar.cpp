// The reference: compiled without the vectoriser (CMakeLists.txt).
#define COLLAB_CODEC_PATH scalar
#include "core/codec/table.h"
