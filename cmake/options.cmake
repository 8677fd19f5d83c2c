# Compiler settings shared by all targets, and the function that turns a folder into a library.
include(CheckCXXCompilerFlag)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

option(QTRAIN_UNITY "Compile the files of a folder dozens at a time: a build from nothing takes half as long" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  # ccache looks entries up by the contents of the files read (depend mode). The preprocessed text of a precompiled
  # header does not contain comments, so a lookup by that text could return a header built from other files, whose
  # `#pragma once` g++ then does not recognize. The separate namespace excludes such entries.
  set(environment CCACHE_DEPEND=true CCACHE_NAMESPACE=depend CCACHE_SLOPPINESS=pch_defines,time_macros)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${environment} ${CCACHE})
  # With paths relative to the build folder, objects of our libraries are found for another build folder, too. Those of
  # kernels are not compiled so, because the harness names their source files in messages.
  set(QTRAIN_LIBRARY_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${environment} ${CCACHE})
endif()

# qtrain_same_in_each_build(target): lets ccache find the objects of a target for the build of scripts/gpu_prebuild.sh
# --quick after that of the preset emulated.
function(qtrain_same_in_each_build target)
  if(CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${QTRAIN_LIBRARY_LAUNCHER}")
  endif()
  # The build for a GPU has a shared library of ops, and all libraries share one precompiled header.
  if(QTRAIN_OPS_LIBRARY OR QTRAIN_CUDA_MODE STREQUAL "emulated")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endfunction()

add_library(qtrain_flags INTERFACE)
target_include_directories(qtrain_flags INTERFACE ${CMAKE_SOURCE_DIR})
set(warnings -Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wno-restrict)  # g++ 12 reports overlaps inside std::string that do not exist
  if(QTRAIN_SANITIZE)
    list(APPEND warnings -Wno-maybe-uninitialized)  # the same inside std::function and std::variant
  endif()
  if(QTRAIN_UNITY)
    list(APPEND warnings -Wno-subobject-linkage)  # file-local types, which seem to come from a header
  endif()
  # By default g++ collects garbage whenever its heap has doubled, which takes a tenth of its time.
  target_compile_options(qtrain_flags INTERFACE
                         $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=400 --param=ggc-min-heapsize=400000>)
endif()
target_compile_options(qtrain_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>)
if(QTRAIN_SANITIZE MATCHES "address|fuzzer")
  target_compile_definitions(qtrain_flags INTERFACE QTRAIN_SANITIZED_BY_ADDRESS)
elseif(QTRAIN_SANITIZE STREQUAL "thread")
  target_compile_definitions(qtrain_flags INTERFACE QTRAIN_SANITIZED_BY_THREAD)
endif()
if(QTRAIN_SANITIZE STREQUAL "address")
  # Checking every single access would double the compile time. The address sanitizer also catches null pointers, and
  # fuzz targets check alignment.
  target_compile_options(qtrain_flags INTERFACE -fsanitize=address,undefined -fno-sanitize=null,alignment,object-size,vptr
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(qtrain_flags INTERFACE -fsanitize=address,undefined)
elseif(QTRAIN_SANITIZE STREQUAL "fuzzer")  # clang
  target_compile_options(qtrain_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  target_link_options(qtrain_flags INTERFACE -fsanitize=address,undefined)
elseif(QTRAIN_SANITIZE STREQUAL "thread")
  target_compile_options(qtrain_flags INTERFACE -fsanitize=thread)
  target_link_options(qtrain_flags INTERFACE -fsanitize=thread)
elseif(QTRAIN_SANITIZE)
  message(FATAL_ERROR "QTRAIN_SANITIZE must be empty, address, thread or fuzzer, not '${QTRAIN_SANITIZE}'")
endif()

# qtrain_library(core DEPENDS fmt::fmt ...): builds library qtrain_core from every .cpp file below the calling folder,
# or below FOLDER if given.
function(qtrain_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "DEPENDS" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR})
  if(ARG_FOLDER)
    string(APPEND folder /${ARG_FOLDER})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(qtrain_${name} STATIC ${sources})
  target_link_libraries(qtrain_${name} PUBLIC qtrain_flags fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${ARG_DEPENDS})
  qtrain_same_in_each_build(qtrain_${name})
  if(NOT name STREQUAL "kernels")  # kernel sources have their own flags
    set_target_properties(qtrain_${name} PROPERTIES UNITY_BUILD ${QTRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 12)
    set(headers core)
    # These folders are slow to compile and contain no loops over tensors or tokens.
    if(name MATCHES "^(config|train_[a-z]+|report|plan|convert|app)$" AND CMAKE_BUILD_TYPE STREQUAL "Release"
       AND NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-O1")
      target_compile_options(qtrain_${name} PRIVATE -O1)
      set(headers config)
    endif()
    # Headers that most files include, parsed once for all libraries compiled at the same optimization level.
    if(name STREQUAL headers)
      target_precompile_headers(qtrain_${name} PRIVATE <fmt/format.h> <algorithm> <filesystem> <functional> <map>
                                ${CMAKE_SOURCE_DIR}/core/formats/json.h)
    elseif(NOT name STREQUAL "emulator")  # has only two units, which do not use JSON
      target_precompile_headers(qtrain_${name} REUSE_FROM qtrain_${headers})
    endif()
    target_compile_options(qtrain_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
  endif()
endfunction()
