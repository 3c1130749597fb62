# How every target of the project is made: one place for the standard, the warnings and the floating-point rules.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# -O3 makes a build longer: collab_fast() asks for it where a benchmark gains by it.
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG") # as CMake has it
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
set(COLLAB_FAST "$<$<CONFIG:Release>:-O3>")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(collab_flags INTERFACE)
# -ffp-contract=off: the same bits on every CPU, whether it has fused multiply-add or not.
target_compile_options(collab_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                                              -Wnon-virtual-dtor -Woverloaded-virtual -Werror -ffp-contract=off)
# Messages of failed checks name files as they stand in the tree; what is installed does not know where that was.
target_compile_options(collab_flags INTERFACE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
# g++ 12 sees overlapping copies in "literal" + std::string (GCC bug 105651).
target_compile_options(collab_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# g++ collects its garbage less often: a seventh less time, for half a gigabyte more.
cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY) # MiB
if(EXISTS /sys/fs/cgroup/memory.max) # of a container
  file(READ /sys/fs/cgroup/memory.max bytes)
  if(bytes MATCHES "^([0-9]+)")
    math(EXPR memory "${CMAKE_MATCH_1} / 1048576")
  endif()
endif()
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR memory "${memory} / ${cores}")
if(memory GREATER 3000)
  target_compile_options(collab_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
endif()
if(COLLAB_SANITIZE)
  target_compile_options(collab_flags INTERFACE "-fsanitize=${COLLAB_SANITIZE}" -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(collab_flags INTERFACE "-fsanitize=${COLLAB_SANITIZE}")
endif()

# collab_library(NAME SOURCES a.cpp ... DEPS target ... PRIVATE_DEPS target ...)
# A static library of one folder; installed with the core unless its name is in COLLAB_NOT_INSTALLED.
function(collab_library name)
  cmake_parse_arguments(ARG "NO_INSTALL" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:collab_flags> ${ARG_PRIVATE_DEPS})
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/plugin>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
    target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                 $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/plugin>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endif()
  string(REPLACE "collab_" "" export_name ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
  add_library(collab::${export_name} ALIAS ${name})
  if(NOT ARG_NO_INSTALL)
    set_property(GLOBAL APPEND PROPERTY COLLAB_CORE_TARGETS ${name})
  endif()
endfunction()

# collab_fast(NAME): a library of loops over all parameters, or of steps whose time is bounded.
function(collab_fast name)
  target_compile_options(${name} PRIVATE "${COLLAB_FAST}")
endfunction()

# collab_test(NAME LABEL unit SOURCES a_test.cpp ... DEPS target ... [TIMEOUT seconds] [ENV "A=b;C=d"])
# One GoogleTest executable; ctest sees it as one test with a label.
function(collab_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;ENV" "SOURCES;DEPS;ARGS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE collab_flags ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # A test's own code is compiled more often than it is waited for.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(alone OFF)
  if(COLLAB_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
    if(NOT ARG_LABEL MATCHES "^(unit|sim)$") # slow as it is, and it waits for sockets
      set(alone ON)
    endif()
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENV}"
                                          RUN_SERIAL ${alone})
endfunction()

# collab_own_names(a_test.cpp ...): these use names in their anonymous namespace that other sources of the program have too,
# so that a build of several sources at a time (CMAKE_UNITY_BUILD, as CI has it) compiles them alone.
function(collab_own_names)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# collab_in_place_of(VARIABLE LIBRARY a.cpp ...): the sources of a library that a program compiles again, with other
# definitions, to link them in place of the library's. Where several are compiled at a time that is all of them.
function(collab_in_place_of variable library)
  get_target_property(folder ${library} SOURCE_DIR)
  set(sources ${ARGN})
  if(CMAKE_UNITY_BUILD)
    get_target_property(sources ${library} SOURCES)
  endif()
  list(TRANSFORM sources PREPEND "${folder}/")
  set(${variable} "${sources}" PARENT_SCOPE)
endfunction()

# collab_bench(NAME SOURCES a_bench.cpp ... DEPS target ...): built, never timed as a test.
function(collab_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE collab_flags ${ARG_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()
