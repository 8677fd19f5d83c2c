#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace qtrain {

/// A library that is looked for when it is first needed. It stays loaded until the program ends: threads and recorded
/// work of CUDA may still be in its code when its last user has gone.
struct SharedLibrary {
  void* handle = nullptr;    ///< for dlsym; nullptr where there is none
  std::string file = {};     ///< the path it was loaded from
  std::string problem = {};  ///< what the loader says of the first place it was looked for in; empty where it was found
};

/// `name` as in "libcublasLt.so.13", from where the loader looks and then from shared_library_places.
SharedLibrary open_shared_library(const std::string& name);

/// Files named `name` that exist, best first: in the packages nvidia-* beside the wheel that holds `program`
/// (site-packages/nvidia/*/lib), in those of the Python environments with the roots `environments`, and in a toolkit
/// below /usr/local/cuda.
struct SharedLibrarySearch {
  std::string name;
  std::filesystem::path program;
  std::vector<std::filesystem::path> environments = {};
};
std::vector<std::filesystem::path> shared_library_places(const SharedLibrarySearch& search);

}  // namespace qtrain
