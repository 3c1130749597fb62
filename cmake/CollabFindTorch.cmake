# collab_find_torch(): the torch that Python_EXECUTABLE imports, as targets of its own.
#
#   collab_libtorch          headers, definitions and the libraries torch_cpu and c10
#   collab_libtorch_python   the same and torch_python, for the module
#
# One extension serves CPU and CUDA builds of torch. CMake's packages Torch and Caffe2 are not used: those of a CUDA
# build want a CUDA toolkit, and libtorch.so would load libtorch_cuda.

set(COLLAB_OLDEST_TORCH 2.11)

# Each line it prints is "collab NAME=VALUE": `import torch` may print something itself.
set(COLLAB_TORCH_PROBE [[
import os, torch, torch.distributed as dist
told = {
    "version": torch.__version__,
    "folder": os.path.dirname(os.path.abspath(torch.__file__)),
    "abi": int(getattr(torch, "compiled_with_cxx11_abi", lambda: True)()),
    "gloo": int(dist.is_available() and dist.is_gloo_available()),
}
for name, value in told.items():
    print(f"collab {name}={value}")
]])

function(collab_find_torch)
  # Without backends of other packages: one that is broken, an older collab say, is none of this build's business.
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 "${Python_EXECUTABLE}" -c "${COLLAB_TORCH_PROBE}"
    OUTPUT_VARIABLE told ERROR_VARIABLE why RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch; install torch there, choose another Python with "
                        "-DPython_EXECUTABLE=..., or leave the adapter out with -DCOLLAB_BUILD_TORCH=OFF.\n${why}")
  endif()
  foreach(name version folder abi gloo)
    if(NOT "\n${told}" MATCHES "\ncollab ${name}=([^\n]*)")
      message(FATAL_ERROR "${Python_EXECUTABLE} was asked for torch's ${name} and said:\n${told}")
    endif()
    set(${name} "${CMAKE_MATCH_1}")
  endforeach()
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${version}")
  if(release VERSION_LESS COLLAB_OLDEST_TORCH)
    message(FATAL_ERROR "${Python_EXECUTABLE} has torch ${version}; ${COLLAB_OLDEST_TORCH} or newer is needed")
  endif()
  if(NOT gloo)
    message(FATAL_ERROR "torch ${version} of ${Python_EXECUTABLE} has no torch.distributed with Gloo, which collab needs")
  endif()

  foreach(library torch_cpu c10 torch_python)
    find_library(found ${library} PATHS "${folder}/lib" NO_DEFAULT_PATH NO_CACHE)
    if(NOT found)
      message(FATAL_ERROR "torch ${version} in ${folder} has no lib${library}.so in its folder lib")
    endif()
    add_library(collab_libtorch_${library} SHARED IMPORTED GLOBAL)
    set_target_properties(collab_libtorch_${library} PROPERTIES IMPORTED_LOCATION "${found}")
    unset(found)
  endforeach()

  add_library(collab_libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(collab_libtorch INTERFACE "${folder}/include" "${folder}/include/torch/csrc/api/include")
  # As in torch's own build: some headers of c10d are empty without.
  target_compile_definitions(collab_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(collab_libtorch INTERFACE collab_libtorch_torch_cpu collab_libtorch_c10)
  add_library(collab_libtorch_python INTERFACE IMPORTED GLOBAL)
  target_link_libraries(collab_libtorch_python INTERFACE collab_libtorch_torch_python collab_libtorch)
  # Of the whole build, for the core is in the same module and speaks std::string with it.
  target_compile_definitions(collab_flags INTERFACE "_GLIBCXX_USE_CXX11_ABI=${abi}")

  message(STATUS "collab: torch ${version} of ${Python_EXECUTABLE}: ${folder}")
endfunction()
