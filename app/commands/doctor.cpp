#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "app/cli/help.h"
#include "app/commands/commands.h"
#include "core/device.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/parallel.h"
#include "core/plural.h"
#include "core/version.h"
#include "dist/nccl_library.h"
#include "hub/curl_library.h"
#include "kernels/dispatch.h"
#include "kernels/libraries.h"
#include "kernels/processor.h"
#include "monitor/gpus.h"
#include "monitor/host.h"
#include "plan/machine.h"

namespace qtrain {
namespace {

/// One line of the report.
struct Finding {
  std::string subject, value;
  std::string cost = {};    ///< drawback of the missing part; empty if nothing is missing
  std::string remedy = {};  ///< how to get it; empty if there is no way or nothing is missing
};

constexpr const char* kOtherProcessor = "use a processor that has it";

std::string gigabytes(double bytes) {
  return fmt::format("{:.1f} GB", bytes / 1e9);
}

std::vector<Finding> processor() {
  std::vector<Finding> findings{
      {"processor", processor_name()},
      {"usable cores", fmt::format("{} of {}", ThreadPool(0).size(), sysconf(_SC_NPROCESSORS_ONLN))}};
  for (const VectorUnit& unit : vector_units())
    findings.push_back(
        {unit.name, unit.there ? "yes" : "no", unit.there ? "" : unit.cost, unit.there ? "" : kOtherProcessor});
  return findings;
}

std::vector<Finding> memory_and_disk() {
  const MachineMemory memory = machine_memory();
  std::vector<Finding> findings{
      {"memory", fmt::format("{} of {} available", gigabytes(memory.available), gigabytes(memory.total))}};
  if (memory.limit > 0) findings.push_back({"memory limit of the container", gigabytes(memory.limit)});
  findings.push_back({"free disk here", gigabytes(free_disk(".").value_or(0))});
  return findings;
}

// Limits other than memory; each is a finding with a cost if it is low.
std::vector<Finding> limits() {
  const auto limit = [](int resource) {
    rlimit r{};
    return ::getrlimit(static_cast<__rlimit_resource>(resource), &r) == 0 ? r.rlim_cur : RLIM_INFINITY;
  };
  const auto text = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : fmt::format("{}", value);
  };
  std::vector<Finding> findings;
  const rlim_t files = limit(RLIMIT_NOFILE);
  constexpr rlim_t kManyFiles = 1024;
  findings.push_back(
      {"open files", text(files),
       files < kManyFiles ? "runs with data in many files, or with many ranks, may fail to open files" : "",
       files < kManyFiles ? "ulimit -n 4096" : ""});
  const rlim_t address = limit(RLIMIT_AS);
  if (address != RLIM_INFINITY)
    findings.push_back({"address space", gigabytes(static_cast<double>(address)),
                        "large models cannot be loaded, because mapped files count toward this limit",
                        "ulimit -v unlimited"});
  const rlim_t written = limit(RLIMIT_FSIZE);
  if (written != RLIM_INFINITY)
    findings.push_back({"maximum file size", gigabytes(static_cast<double>(written)),
                        "models larger than this cannot be saved", "ulimit -f unlimited"});
  const monitor::HostReading host = monitor::Host().read(0, {});
  if (host.group.cpu_limit)
    findings.push_back(
        {"core limit of the container", fmt::format("{:.1f} of {}", *host.group.cpu_limit, host.processors),
         *host.group.cpu_limit < ThreadPool(0).size()
             ? "extra threads slow the run down, because they share these cores"
             : "",
         *host.group.cpu_limit < ThreadPool(0).size()
             ? fmt::format("set threads={:.0f}, or raise the limit", std::max(1.0, *host.group.cpu_limit))
             : ""});
  return findings;
}

// Whether `qtrain monitor` can read GPUs; nothing is missing if there is no GPU.
std::vector<Finding> monitoring() {
  const monitor::Gpus gpus;
  if (gpus.problem().empty()) return {{"NVML", "driver " + gpus.driver()}};
  if (!cuda_problem().empty()) return {};
  return {{"NVML", gpus.problem(), "qtrain monitor cannot show the GPUs", "install the driver's libnvidia-ml.so.1"}};
}

/// File names of the shared libraries loaded by this process: "libpcre2-8.so.0.11.2", ...
std::set<std::string> loaded_libraries() {
  std::set<std::string> names;
  std::ifstream in("/proc/self/maps");
  for (std::string line; std::getline(in, line);) {
    const auto slash = line.rfind('/');
    if (slash == std::string::npos || line.find(".so") == std::string::npos) continue;
    names.insert(line.substr(slash + 1));
  }
  return names;
}

Finding curl_finding() {
  try {
    return {"libcurl", curl_library().version()};
  } catch (const Error& e) {  // a part that is missing
    return {"libcurl", e.text().cause, "models and data sets cannot be fetched from a hub", e.text().remedy};
  }
}

std::vector<Finding> libraries() {
  constexpr std::pair<std::string_view, std::string_view> kLinked[] = {
      {"libpcre2", "PCRE2"}, {"libsentencepiece", "sentencepiece"}, {"libyaml-cpp", "yaml-cpp"}};
  std::vector<Finding> findings;
  const auto loaded = loaded_libraries();
  for (const auto& [file, name] : kLinked) {
    const auto begins = [prefix = file](const std::string& s) { return s.starts_with(prefix); };
    const auto it = std::find_if(loaded.begin(), loaded.end(), begins);
    findings.push_back({std::string(name), it != loaded.end() ? *it : "linked statically"});
  }
  findings.push_back({"zlib", zlibVersion()});
  findings.push_back({"zstd", ZSTD_versionString()});
  findings.push_back(curl_finding());
  return findings;
}

Finding nccl_finding() {
  const NcclState nccl = nccl_state();
  if (nccl.problem.empty()) return {"NCCL", fmt::format("{} ({})", nccl.version, nccl.file)};
  return {"NCCL", nccl.problem, "a run can use only one GPU",
          "add the folder of libnccl.so.2 to LD_LIBRARY_PATH (PyTorch comes with one in nvidia/nccl/lib)"};
}

std::vector<Finding> cuda_findings() {
  std::vector<Finding> findings;
  if constexpr (ops::kHasCuda)
    for (const CudaLibrary& l : cuda_libraries())
      findings.push_back({l.name, l.problem.empty() ? l.file : l.problem,
                          l.problem.empty() ? "" : "GPUs cannot be used",
                          l.problem.empty() ? "" : "add the folder of " + l.file + " to LD_LIBRARY_PATH"});
  if constexpr (ops::kHasCuda) findings.push_back(nccl_finding());
  return findings;
}

std::vector<Finding> devices() {
  if (std::string problem = cuda_problem(); !problem.empty()) {
    if (path_exists("/proc/driver/nvidia/version")) problem += "; an NVIDIA driver is installed";
    return {{"CUDA", problem,
             "everything runs on the processor: small models and adapters train in minutes, but models above a few "
             "billion parameters are not practical",
             "use an NVIDIA GPU with its driver, and a build with the CUDA backend"}};
  }
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  std::vector<Finding> findings;
  for (int i = 0; i < cuda_device_count(); ++i) {
    const DeviceInfo d = cuda_info(i);
    const bool bf16 = d.major >= 8;
    findings.push_back({i == 0 ? "CUDA" : fmt::format("CUDA device {}", i),
                        fmt::format("{}, {} of {} free, compute capability {}.{}, {} multiprocessors", d.name,
                                    gigabytes(static_cast<double>(d.free_bytes)),
                                    gigabytes(static_cast<double>(d.total_bytes)), d.major, d.minor, d.multiprocessors),
                        bf16 ? "" : "this GPU has no bfloat16", bf16 ? "" : "set fp16=true, or train in float32"});
    if (i == 0)
      findings.push_back(
          {"CUDA versions", fmt::format("driver {}, toolkit {}", version(d.driver), version(d.runtime))});
  }
  return findings;
}

}  // namespace

/// `qtrain doctor`: lists what this machine has, and what each missing part costs.
int run_doctor(const Arguments& arguments) {
  constexpr std::size_t kColumn = 31;
  std::vector<Finding> all{{"qtrain", std::string(kVersion)}};
  for (const auto& part :
       {processor(), memory_and_disk(), limits(), libraries(), devices(), cuda_findings(), monitoring()})
    all.insert(all.end(), part.begin(), part.end());
  CommandResult result{.text = "", .json = Json::object()};
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  std::int64_t missing = 0;
  for (const Finding& f : all) {
    result.json[f.subject] = {{"value", f.value}, {"cost", or_null(f.cost)}, {"remedy", or_null(f.remedy)}};
    result.text += in_columns(f.subject, f.value, kColumn);
    if (!f.cost.empty()) result.text += in_columns("", "effect: " + f.cost, kColumn);
    if (!f.remedy.empty()) result.text += in_columns("", "remedy: " + f.remedy, kColumn);
    missing += f.cost.empty() ? 0 : 1;
  }
  result.text += missing == 0 ? "\nnothing is missing\n" : fmt::format("\n{} missing\n", counted(missing, "part"));
  arguments.give(result);
  return 0;
}

}  // namespace qtrain
