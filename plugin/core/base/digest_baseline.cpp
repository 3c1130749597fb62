#define COLLAB_DIGEST_PATH kDigestBaseline
#define COLLAB_DIGEST_PATH_NAME "baseline"
#include "core/base/digest_path_body.h"
