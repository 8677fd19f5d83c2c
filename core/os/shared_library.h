#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace qtrain {

/// A library that is loaded when it is first needed. It stays loaded until the program ends, because threads and CUDA
/// graphs may still use its code after its last user is gone.
struct SharedLibrary {
  void* handle = nullptr;    ///< for dlsym; nullptr if it was not found
  std::string file = {};     ///< the path it was loaded from
  std::string problem = {};  ///< the loader's error for the first place that was searched; empty if it was found
};

/// Loads the library `name`, such as "libcublasLt.so.13": from the loader's search path, else from
/// shared_library_places.
SharedLibrary open_shared_library(const std::string& name);

/// Files named `name` that exist, best first: in the packages nvidia-* next to the wheel that contains `program`
/// (site-packages/nvidia/*/lib), in those of the Python environments with the roots `environments`, and in a toolkit
/// below /usr/local/cuda.
struct SharedLibrarySearch {
  std::string name;
  std::filesystem::path program;
  std::vector<std::filesystem::path> environments = {};
};
std::vector<std::filesystem::path> shared_library_places(const SharedLibrarySearch& search);

}  // namespace qtrain
