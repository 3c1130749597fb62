# collab_find_ucx(): the headers UCX is compiled against and the library to fall back on at run time.
#
# Nothing links UCX: it is loaded when a transport is made. Looked for at COLLAB_UCX_ROOT (a folder with include/ and
# lib/), then in the libucx wheel of the Python in use (Python_EXECUTABLE, the active or the source tree's .venv), then
# in the system. Sets COLLAB_UCX_INCLUDE_DIR and COLLAB_UCX_BUILD_LIBRARY in the caller's scope.
function(collab_find_ucx)
  set(origin "COLLAB_UCX_ROOT")
  set(root "${COLLAB_UCX_ROOT}")
  if(NOT root)
    set(pythons ${Python_EXECUTABLE} $ENV{VIRTUAL_ENV}/bin/python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    foreach(python ${pythons})
      if(NOT EXISTS "${python}" OR root)
        continue()
      endif()
      execute_process(
        COMMAND "${python}" -c "import importlib.util as u; print(u.find_spec('libucx').submodule_search_locations[0])"
        OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
      if(NOT failed AND EXISTS "${found}/include/ucp/api/ucp.h")
        set(root "${found}")
        set(origin "the libucx wheel")
      endif()
    endforeach()
  endif()
  if(root)
    find_path(include_dir ucp/api/ucp.h PATHS "${root}/include" NO_DEFAULT_PATH NO_CACHE REQUIRED)
    find_library(library NAMES libucp.so.0 ucp PATHS "${root}/lib" NO_DEFAULT_PATH NO_CACHE)
  else()
    set(origin "the system")
    find_path(include_dir ucp/api/ucp.h NO_CACHE)
    find_library(library NAMES libucp.so.0 ucp NO_CACHE)
  endif()
  if(NOT include_dir)
    message(FATAL_ERROR "UCX was not found: `pip install libucx-cu12` into the build's Python, install the system's "
                        "libucx-dev, name its folder with -DCOLLAB_UCX_ROOT=..., or build with -DCOLLAB_WITH_UCX=OFF")
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
