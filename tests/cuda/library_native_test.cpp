#include "kernels/libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

// CUDA threads and recorded work may use the library's code until the program ends.
TEST(CudaLibraries, StayLoaded) {
  for (const CudaLibrary& library : cuda_libraries()) {
    if (!library.problem.empty()) GTEST_SKIP() << library.problem;
    EXPECT_NE(dlopen(library.file.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << library.file;
  }
}

}  // namespace
}  // namespace qtrain
