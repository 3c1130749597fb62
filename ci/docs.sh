#!/usr/bin/env bash
# Builds the documents with MkDocs into build/site; a broken link, a page outside the navigation or any other warning is
# an error. `ci/docs.sh serve` shows them at http://127.0.0.1:8000 and follows changes.
. "$(dirname "$0")/common.sh"
use_venv
export NO_MKDOCS_2_WARNING=1 # silences the theme's notice about MkDocs 2
if [ "${1-}" = serve ]; then
  exec mkdocs serve
fi
mkdocs build --strict --clean
