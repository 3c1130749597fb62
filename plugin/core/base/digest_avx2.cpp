#define COLLAB_DIGEST_PATH kDigestAvx2
#define COLLAB_DIGEST_PATH_NAME "avx2"
#include "core/base/digest_path_body.h"
