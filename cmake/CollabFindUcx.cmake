# collab_find_ucx(): the headers UCX is compiled against and the library to fall back on at run time.
#
# Nothing links UCX: it is loaded when a transport is made. Looked for at COLLAB_UCX_ROOT (a folder with include/ and
# lib/), then in the libucx wheel of the Python in use (Python_EXECUTABLE, else that of the active virtual environment,
# else that of the source tree's .venv), then in the system. Sets COLLAB_UCX_INCLUDE_DIR and COLLAB_UCX_BUILD_LIBRARY in
# the caller's scope. Where there are no headers it stops if UCX was asked for (COLLAB_WITH_UCX=ON, COLLAB_UCX_ROOT),
# and else (AUTO) says what to do and sets nothing.
function(collab_find_ucx)
  set(origin "COLLAB_UCX_ROOT")
  set(root "${COLLAB_UCX_ROOT}")
  if(NOT root)
    foreach(python "${Python_EXECUTABLE}" "$ENV{VIRTUAL_ENV}/bin/python" "${PROJECT_SOURCE_DIR}/.venv/bin/python")
      if(EXISTS "${python}")
        execute_process(
          COMMAND "${python}" -c "import importlib.util as u; print(u.find_spec('libucx').submodule_search_locations[0])"
          OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
        if(NOT failed AND EXISTS "${found}/include/ucp/api/ucp.h")
          set(root "${found}")
          set(origin "the libucx wheel")
        endif()
        break()
      endif()
    endforeach()
  endif()
  if(root)
    find_path(include_dir ucp/api/ucp.h PATHS "${root}/include" NO_DEFAULT_PATH NO_CACHE)
    find_library(library NAMES libucp.so.0 ucp PATHS "${root}/lib" NO_DEFAULT_PATH NO_CACHE)
  else()
    set(origin "the system")
    find_path(include_dir ucp/api/ucp.h NO_CACHE)
    find_library(library NAMES libucp.so.0 ucp NO_CACHE)
  endif()
  if(NOT include_dir)
    string(CONCAT remedy "`pip install libucx-cu12` into the build's Python, install the system's libucx-dev, or name "
                         "UCX's folder with -DCOLLAB_UCX_ROOT=...")
    if(root)
      message(FATAL_ERROR "${origin} is ${root}, which has no include/ucp/api/ucp.h: ${remedy}")
    elseif(NOT COLLAB_WITH_UCX STREQUAL "AUTO")
      message(FATAL_ERROR "COLLAB_WITH_UCX=${COLLAB_WITH_UCX}, and UCX's headers (ucp/api/ucp.h) were not found: "
                          "${remedy}; or build without the ucx transport, -DCOLLAB_WITH_UCX=OFF")
    endif()
    message(STATUS "collab: without the ucx transport, for UCX's headers (ucp/api/ucp.h) were not found. To have it: "
                   "${remedy}, and configure again")
    return()
  endif()
  file(STRINGS "${include_dir}/ucp/api/ucp_version.h" lines REGEX "define UCP_API_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" version "${lines}")
  if(NOT library)
    set(library "")
  endif()
  message(STATUS "collab: UCX ${version} headers from ${origin}: ${include_dir}; library ${library}")
  set(COLLAB_UCX_INCLUDE_DIR "${include_dir}" PARENT_SCOPE)
  set(COLLAB_UCX_BUILD_LIBRARY "${library}" PARENT_SCOPE)
endfunction()
