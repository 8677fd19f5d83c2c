#include "dist/rank_place.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace qtrain {
namespace {

/// The variables of a launcher. `rank` is set in each of its processes. Of several names, the first that is set counts.
struct Launcher {
  std::string_view name;
  const char *rank, *size, *local_rank;
  std::array<const char*, 2> local_size;
  const char *host, *port;
};

constexpr std::array kLaunchers{
    Launcher{"qtrain",
             "QTRAIN_RANK",
             "QTRAIN_WORLD_SIZE",
             "QTRAIN_LOCAL_RANK",
             {"QTRAIN_LOCAL_WORLD_SIZE", nullptr},
             "QTRAIN_STORE_HOST",
             "QTRAIN_STORE_PORT"},
    Launcher{
        "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"LOCAL_WORLD_SIZE", nullptr}, "MASTER_ADDR", "MASTER_PORT"},
    Launcher{"Open MPI",
             "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK",
             {"OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
             "MASTER_ADDR",
             "MASTER_PORT"},
    Launcher{"Slurm",
             "SLURM_PROCID",
             "SLURM_STEP_NUM_TASKS",
             "SLURM_LOCALID",
             {"SLURM_STEP_TASKS_PER_NODE", nullptr},
             "MASTER_ADDR",
             "MASTER_PORT"},
};

constexpr int kMaxRanks = 1 << 16;  // rank 0 keeps a list of them

constexpr const char* kAttempt = "QTRAIN_ATTEMPT";  // set by qtrain's own launcher

// An empty variable counts as not set.
std::string variable(const char* name) {
  const char* value = name ? std::getenv(name) : nullptr;
  return value ? value : "";
}

// Slurm writes the ranks per machine as a list: "2(x3)" means two on each of three machines, "3,1" three on the first.
int number(const std::string& text, const Launcher& launcher, std::string_view name) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const bool is_whole =
      end == text.data() + text.size() || (name == launcher.local_size[0] && (*end == '(' || *end == ','));
  if (error != std::errc() || n < 0 || !is_whole)
    fail(ErrorKind::usage, {.cause = fmt::format("{} is \"{}\", not a number", name, text),
                            .place = fmt::format("the environment, as {} sets it", launcher.name)});
  return n;
}

int number_of(const Launcher& launcher, const char* name, int otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : number(text, launcher, name);
}

// A shell inside a Slurm allocation has the variables of the allocation; only srun sets those of a step.
bool started_by(const Launcher& launcher) {
  return !variable(launcher.rank).empty() && !variable(launcher.size).empty() &&
         !variable(launcher.local_rank).empty() && number(variable(launcher.size), launcher, launcher.size) > 1;
}

void require_place(const RankPlace& p, const Launcher& launcher) {
  const auto wrong = [&](std::string cause) {
    fail(ErrorKind::usage,
         {.cause = std::move(cause), .place = fmt::format("the environment, as {} sets it", p.launcher)});
  };
  if (p.size > kMaxRanks)
    wrong(fmt::format("{} is {}, but a run can have at most {} ranks", launcher.size, p.size, kMaxRanks));
  if (p.local_size < 1) wrong(fmt::format("{} is 0, but it must include this rank", launcher.local_size[0]));
  if (p.rank >= p.size)
    wrong(fmt::format("{} is {}, but the {} ranks are numbered from 0", launcher.rank, p.rank, p.size));
  if (p.store.host.empty() || p.store.port == 0)
    wrong(fmt::format("{} and {} must give the address of rank 0", launcher.host, launcher.port));
}

// torchrun has its own store at MASTER_PORT, so the next port is used.
std::uint16_t port_of(const Launcher& launcher) {
  constexpr int kMaxPort = 65535;
  const int port = number_of(launcher, launcher.port, 0) + (variable("TORCHELASTIC_USE_AGENT_STORE") == "True" ? 1 : 0);
  if (port > kMaxPort)
    fail(ErrorKind::usage, {.cause = fmt::format("{} is {}, but the highest port is {}", launcher.port, port, kMaxPort),
                            .place = fmt::format("the environment, as {} sets it", launcher.name)});
  return static_cast<std::uint16_t>(port);
}

RankPlace place_by(const Launcher& launcher) {
  RankPlace p{.rank = number_of(launcher, launcher.rank, 0),
              .size = number_of(launcher, launcher.size, 1),
              .store = {.host = variable(launcher.host), .port = port_of(launcher)},
              .launcher = std::string(launcher.name)};
  p.local_rank = number_of(launcher, launcher.local_rank, 0);
  p.local_size = number_of(launcher, launcher.local_size[0], number_of(launcher, launcher.local_size[1], 1));
  if (p.launcher == "qtrain") p.attempt = number_of(launcher, kAttempt, 0);
  p.serves_store = launcher.name != "qtrain" && p.rank == 0;
  require_place(p, launcher);
  return p;
}

}  // namespace

std::optional<RankPlace> rank_place() {
  for (const Launcher& launcher : kLaunchers)
    if (started_by(launcher)) return place_by(launcher);
  return {};
}

std::optional<NodePlace> node_place() {
  const Launcher& names = kLaunchers[1];
  const bool set = !variable(names.rank).empty() && !variable(names.size).empty() && !variable(names.host).empty();
  if (!set || !variable(names.local_rank).empty() || number(variable(names.size), names, names.size) < 2) return {};
  const RankPlace place = place_by(names);
  return NodePlace{.node = place.rank, .nodes = place.size, .meeting = place.store};
}

std::vector<std::string> variables_without_place() {
  std::vector<std::string> empty;
  for (const Launcher& launcher : kLaunchers) empty.push_back(fmt::format("{}=", launcher.rank));
  return empty;
}

std::vector<std::string> place_variables(const RankPlace& place) {
  const Launcher& names = kLaunchers[0];
  return {fmt::format("{}={}", names.rank, place.rank),
          fmt::format("{}={}", names.size, place.size),
          fmt::format("{}={}", names.local_rank, place.local_rank),
          fmt::format("{}={}", names.local_size[0], place.local_size),
          fmt::format("{}={}", names.host, place.store.host),
          fmt::format("{}={}", names.port, place.store.port),
          fmt::format("{}={}", kAttempt, place.attempt)};
}

}  // namespace qtrain
