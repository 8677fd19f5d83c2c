#include "tests/dist/rank_processes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <list>
#include <sstream>
#include <thread>

#include "core/os/file.h"
#include "dist/child.h"
#include "dist/nccl_library.h"
#include "dist/rank_group.h"
#include "tests/core/temp_folder.h"
#include "tests/dist/meetings.h"

namespace qtrain::test {
namespace {

constexpr const char *kAnswer = "QTRAIN_TEST_ANSWER", *kPlace = "QTRAIN_TEST_PLACE";
constexpr const char* kFolder = QTRAIN_NCCL_FOLDER;  // empty: NCCL itself

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

RankPlace own_place() {
  std::istringstream words(variable(kPlace));
  RankPlace place{.store = {.host = "127.0.0.1"}};
  words >> place.rank >> place.size >> place.store.port;
  place.local_rank = place.rank;
  place.local_size = place.size;
  return place;
}

std::vector<std::string> variables_of(int rank, const RankProcesses& how) {
  std::vector<std::string> all = how.variables;
  if (*kFolder != '\0') {
    all.push_back(fmt::format("LD_LIBRARY_PATH={}:{}", kFolder, variable("LD_LIBRARY_PATH")));
    all.push_back(fmt::format("QTRAIN_EMULATION=threads=1,devices={}", how.devices > 0 ? how.devices : how.size));
  }
  const bool shared = *kFolder == '\0' && cuda_device_count() < how.size;
  if (shared || how.hosts > 1) all.push_back(fmt::format("NCCL_HOSTID={}", rank));  // lets NCCL share a GPU
  return all;
}

/// Runs the work of a rank, which is all that this process does.
[[noreturn]] void answer(const std::function<void()>& work) {
  std::string error;
  try {
    work();
  } catch (const std::exception& e) {
    error = e.what();
  }
  write_file(variable(kAnswer), error + "\n");
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

RankEnd end_of(Child& child, const std::filesystem::path& answered) {
  std::optional<ChildEnd> end;
  while (!(end = child.poll())) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(end->signal == SIGKILL || !end->failed()) << end->text();  // a test may kill a rank on purpose
  std::string error = std::filesystem::exists(answered) ? read_text(answered) : "";
  if (!error.empty()) error.pop_back();
  return {.error = error, .killed = end->signal != 0};
}

std::vector<RankEnd> run_processes(const RankProcesses& how) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const qtrain::testing::TempFolder folder;
  StoreServer server(free_meeting());
  std::list<Child> children;
  for (int rank = 0; rank < how.size; ++rank) {
    std::vector<std::string> variables = variables_of(rank, how);
    variables.push_back(fmt::format("{}={} {} {}", kPlace, rank, how.size, server.port()));
    variables.push_back(fmt::format("{}={}", kAnswer, (folder / std::to_string(rank)).string()));
    children.emplace_back(
        Child::Start{.command = {"ranks", fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name())},
                     .variables = variables});
  }
  std::vector<RankEnd> ends;
  for (Child& child : children) ends.push_back(end_of(child, folder / std::to_string(ends.size())));
  return ends;
}

}  // namespace

std::string rank_processes_problem() {
  if (const std::string problem = cuda_problem(); !problem.empty()) return problem;
  return *kFolder != '\0' ? "" : nccl_state().problem;
}

std::vector<RankEnd> on_processes(const RankProcesses& how, const RankWork& work) {
  if (variable(kAnswer).empty()) return run_processes(how);
  answer([&] {
    const Device device{DeviceKind::cuda, own_place().local_rank % cuda_device_count()};
    RankGroup group(own_place(), {.timeout = how.timeout, .device = device, .secret = rank_secret()});
    Ctx ctx(device, MatmulPrecision::storage, 1);
    work(ctx, group.collective());
  });
}

std::vector<RankEnd> on_bare_processes(const RankProcesses& how, const BareWork& work) {
  if (variable(kAnswer).empty()) return run_processes(how);
  answer([&] {
    const RankPlace place = own_place();
    Store store(meeting_at(place.store.port), how.timeout);
    work(place.rank, store);
  });
}

}  // namespace qtrain::test
