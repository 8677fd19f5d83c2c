#include "emulator/ptx/compiled.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "core/error.h"
#include "emulator/ptx/machine.h"
#include "emulator/ptx/symbols.h"

namespace qtrain::emulation::ptx {
namespace {

namespace fs = std::filesystem;

/// All kernels in a folder, by name without compiler-generated hashes.
class Library {
 public:
  explicit Library(const std::string& folder) : folder_(folder) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      if (entry.path().extension() != ".ptx") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      programs_.push_back(parse(text, entry.path().filename()));
      for (const auto& [mangled, function] : programs_.back().functions) {
        const auto [known, added] = by_name_.emplace(plain_name(mangled), &function);
        if (!added && known->second->name != mangled)  // the same kernel of a header may be in many files
          fail(ErrorKind::input, {.cause = "two kernels have the name " + known->first, .place = folder});
      }
    }
    if (by_name_.empty())
      fail(ErrorKind::usage, {.cause = "the folder has no kernels",
                              .place = "QTRAIN_EMULATION, ptx=" + folder,
                              .remedy = "create them with scripts/ptx_tests.py"});
  }

  const Function& at(const void* function, const char* name) {
    const std::lock_guard lock(mutex_);
    const Function*& known = by_address_[function];
    if (known) return *known;
    const std::string plain = plain_name(symbols_.at(function));
    const auto found = by_name_.find(plain);
    if (found == by_name_.end())
      fail(ErrorKind::internal,
           {.cause = std::string("kernel ") + name + ": the PTX has no " + plain, .place = folder_});
    return *(known = found->second);
  }

 private:
  std::string folder_;
  std::deque<Program> programs_;
  std::map<std::string, const Function*> by_name_;
  Symbols symbols_;
  std::mutex mutex_;
  std::map<const void*, const Function*> by_address_;
};

void run_thread(const void* call) {
  Machine(current(), *static_cast<const Call*>(call)).run();
}

}  // namespace

std::shared_ptr<const Call> call_of(const void* function, const char* name, const std::vector<Argument>& arguments) {
  if (settings().ptx.empty()) return nullptr;
  static Library library(settings().ptx);
  const Function& f = library.at(function, name);
  auto call = std::make_shared<Call>(Call{.function = &f, .parameters = std::vector<std::byte>(f.parameter_bytes)});
  check(f.parameters.size() == arguments.size(), "a compiled kernel has another number of parameters");
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    check(f.parameters[n].bytes == arguments[n].bytes, "a parameter of a compiled kernel has another size");
    std::memcpy(call->parameters.data() + f.parameters[n].offset, arguments[n].data, arguments[n].bytes);
  }
  return call;
}

void run_grid(const Call& call, const char* name, const Extents& extents) {
  const auto run = [&](const Call& c) {
    emulation::run_grid({.name = name, .run = run_thread, .arguments = &c, .argument_bytes = sizeof c}, extents);
  };
  Counting* counting = Counting::current();
  if (!counting) return run(call);
  LaunchTrace trace(*call.function);
  Call traced = call;
  traced.trace = &trace;
  run(traced);
  counting->add({.name = name, .kernel = short_name(call.function->name), .counts = trace.counts()});
}

}  // namespace qtrain::emulation::ptx
