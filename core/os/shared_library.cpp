#include "core/os/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const fs::path& parent) {
  std::error_code none;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, none))
    if (entry.is_directory(none)) found.push_back(entry.path());
  std::sort(found.rbegin(), found.rend());  // puts cu13 before cu12, python3.12 before python3.11
  return found;
}

void add_packages(const fs::path& site_packages, const std::string& name, std::vector<fs::path>& found) {
  std::error_code none;
  for (const fs::path& package : folders_of(site_packages / "nvidia"))
    if (const fs::path file = package / "lib" / name; fs::is_regular_file(file, none)) found.push_back(file);
}

std::vector<fs::path> active_environments() {
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* root = std::getenv(variable); root && *root) roots.emplace_back(root);
  return roots;
}

}  // namespace

std::vector<fs::path> shared_library_places(const SharedLibrarySearch& search) {
  std::vector<fs::path> found;
  const fs::path wheel = search.program.parent_path().parent_path();  // site-packages/qtrain/bin/qtrain
  if (wheel.parent_path().filename() == "site-packages") add_packages(wheel.parent_path(), search.name, found);
  for (const fs::path& root : search.environments)
    for (const fs::path& python : folders_of(root / "lib"))
      if (python.filename().string().starts_with("python")) add_packages(python / "site-packages", search.name, found);
  std::error_code none;
  if (const fs::path file = fs::path("/usr/local/cuda/lib64") / search.name; fs::is_regular_file(file, none))
    found.push_back(file);
  return found;
}

SharedLibrary open_shared_library(const std::string& name) {
  std::error_code none;
  std::vector<fs::path> places{name};
  const SharedLibrarySearch search{
      .name = name, .program = fs::read_symlink("/proc/self/exe", none), .environments = active_environments()};
  for (fs::path& place : shared_library_places(search)) places.push_back(std::move(place));
  SharedLibrary library;
  for (const fs::path& place : places) {
    library.handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library.handle) {
      link_map* map = nullptr;
      const bool found = dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0 && map;
      return {.handle = library.handle, .file = found ? map->l_name : place.string()};
    }
    if (const char* error = dlerror(); error && library.problem.empty()) library.problem = error;
  }
  return library;
}

}  // namespace qtrain
