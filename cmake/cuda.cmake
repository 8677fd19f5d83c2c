# The CUDA backend: QTRAIN_CUDA chooses how kernels/cuda is compiled.
#   native    by nvcc, for QTRAIN_CUDA_ARCHS
#   emulated  by the C++ compiler; every kernel runs on the CPU under the execution harness (docs/kernels.md)
#   off       not at all
#   auto      native where nvcc 12 or newer is found and no sanitizer is asked for, else off
set(QTRAIN_CUDA auto CACHE STRING "CUDA backend: auto, native, emulated or off")
set(QTRAIN_CUDA_ARCHS "" CACHE STRING "Architectures of a native build as CMake names them (90a-real;120), or all; \
empty: the GPU of this machine, else 90a-real")

function(qtrain_find_nvcc)
  find_program(QTRAIN_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin ${ARGN})
endfunction()

set(QTRAIN_CUDA_MODE ${QTRAIN_CUDA})
if(QTRAIN_CUDA STREQUAL "auto")
  set(QTRAIN_CUDA_MODE off)
  qtrain_find_nvcc()
  if(QTRAIN_NVCC AND NOT QTRAIN_SANITIZE)
    execute_process(COMMAND ${QTRAIN_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(text MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12)  # C++20
      set(QTRAIN_CUDA_MODE native)
    else()
      message(STATUS "${QTRAIN_NVCC} is older than 12: no CUDA backend")
    endif()
  endif()
elseif(NOT QTRAIN_CUDA MATCHES "^(native|emulated|off)$")
  message(FATAL_ERROR "QTRAIN_CUDA must be auto, native, emulated or off, not '${QTRAIN_CUDA}'")
endif()
message(STATUS "CUDA backend: ${QTRAIN_CUDA_MODE}")

if(QTRAIN_CUDA_MODE STREQUAL "native")
  qtrain_find_nvcc(REQUIRED)
  set(CMAKE_CUDA_COMPILER ${QTRAIN_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${QTRAIN_CUDA_ARCHS})
  if(QTRAIN_CUDA_ARCHS STREQUAL "all")  # the last one also as PTX, for GPUs to come
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 100-real 120)
  elseif(NOT CMAKE_CUDA_ARCHITECTURES)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capability ERROR_QUIET RESULT_VARIABLE missing)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
    if(NOT missing AND capability MATCHES "^([0-9]+)\\.([0-9])")
      set(CMAKE_CUDA_ARCHITECTURES "${CMAKE_MATCH_1}${CMAKE_MATCH_2}-real")
      string(REGEX REPLACE "^(90|100|120)-" "\\1a-" CMAKE_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
    endif()
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  # CMake before 3.26 does not know that nvcc supports C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# qtrain_cuda_sources(target file.cu...): adds kernels to a target, compiled as QTRAIN_CUDA says.
function(qtrain_cuda_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  if(QTRAIN_CUDA_MODE STREQUAL "native")
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/kernels/cuda/native)
    # 554: a conversion function to the class's own type, which views of const bytes have
    set(flags --expt-relaxed-constexpr --diag-suppress=554 -lineinfo -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers
        -Xfatbin=-compress-all)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)  # drivers of CUDA 12.0 to 12.3 cannot read this compression
      list(APPEND flags --compress-mode=size)
    endif()
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${flags}")
  else()
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/emulator)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "${QTRAIN_EMULATED_FLAGS}"
                                SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# The compiler's instrumentation calls the harness on every memory access (emulator/instrumentation.cpp). Sanitizer
# builds use the sanitizer's own instrumentation instead. -fexpensive-optimizations contracts products and sums into
# FMAs as CPU code does, because some tests compare the bits; -O1 alone does not.
set(QTRAIN_EMULATED_FLAGS -O1 -fexpensive-optimizations -g1 -march=x86-64-v3 -fno-strict-aliasing -Wno-unknown-pragmas)
if(NOT QTRAIN_SANITIZE)
  list(APPEND QTRAIN_EMULATED_FLAGS -fsanitize=thread --param=tsan-instrument-func-entry-exit=0
       -fsanitize=alignment,bounds-strict,shift,integer-divide-by-zero)
  if(QTRAIN_CUDA_MODE STREQUAL "emulated")
    # The checks refer to 150,000 source locations, which a position-independent program would relocate at every start.
    add_link_options(-no-pie)
  endif()
endif()
