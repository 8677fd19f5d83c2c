// Loaded into the ranks of a run by LD_PRELOAD: makes one of them fail as the environment variables RANK_FAULT_* say.
// The program itself has no hooks: this library intercepts calls of gloo and the clock, and reads the progress of the
// run from metrics.jsonl.
#include <dlfcn.h>
#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The fault that the environment requests.
struct Fault {
  std::string kind, phase, output;
  std::string once;  ///< a file that is created when the fault happens, which prevents a second one
  bool here = false;
};

const Fault& fault() {
  static const Fault f{variable("RANK_FAULT"), variable("RANK_FAULT_PHASE"), variable("RANK_FAULT_OUTPUT"),
                       variable("RANK_FAULT_ONCE"),
                       !variable("RANK_FAULT_RANK").empty() && variable("RANK_FAULT_RANK") == variable("QTRAIN_RANK")};
  return f;
}

bool is_saving(const std::string& output) {
  return access((output + "/checkpoint-4.tmp").c_str(), F_OK) == 0;
}

std::string last_row(const std::string& file) {
  std::ifstream rows(file);
  std::string last;
  for (std::string row; std::getline(rows, row);) last = row;
  return last;
}

// Whether this is the text that ranks compare before they train: the config, and the hashes of data and weights.
bool is_agreement(std::string_view sent) {
  return sent.find("\"learning_rate\"") != std::string_view::npos;
}

// Whether the run is in this phase. It has six steps, evaluates after the third, and saves after every second one.
bool is_phase(const std::string& phase, std::string_view sent = {}) {
  const Fault& f = fault();
  if (phase == "agreement") return is_agreement(sent);
  const std::string row = last_row(f.output + "/metrics.jsonl");
  const auto says = [&](const char* text) { return row.find(text) != std::string::npos; };
  if (phase == "rows") return row.empty();
  if (phase == "step") return says("\"loss\"") && says("\"step\": 1,");
  if (phase == "evaluation") return says("\"loss\"") && says("\"step\": 3,");
  if (phase == "saving") return says("\"loss\"") && says("\"step\": 4,") && is_saving(f.output);
  return phase == "end" && says("\"train_runtime\"");
}

bool is_first_time() {
  const int made = open(fault().once.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (made >= 0) close(made);
  return made >= 0;
}

bool is_due(const char* kind, std::string_view sent = {}) {
  const Fault& f = fault();
  return f.here && f.kind == kind && is_phase(f.phase, sent) && is_first_time();
}

void sleep_for(double seconds) {
  timespec left{static_cast<time_t>(seconds), static_cast<long>(seconds * 1e9) % 1000000000};
  while (nanosleep(&left, &left) != 0) {
  }
}

void fail_by(const std::string& how) {
  if (how == "hold") return sleep_for(3);
  if (how == "exit") _exit(0);
  const int signal = how == "kill" ? SIGKILL : how == "stop" ? SIGSTOP : SIGSEGV;
  if (signal == SIGSEGV) ::signal(SIGSEGV, SIG_DFL);
  kill(getpid(), signal);
}

// Called before any intercepted call, whichever it is.
void come_to_call(std::string_view sent = {}) {
  const Fault& f = fault();
  if (!f.here) return;
  if (f.kind == "slow" && is_phase(f.phase)) sleep_for(0.05);
  for (const char* how : {"hold", "kill", "segv", "stop", "exit"})
    if (is_due(how, sent)) fail_by(how);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  const Fault& f = fault();
  if (f.here && f.phase == "start" && is_first_time()) fail_by(f.kind);
}

// A process that hangs after all its work, as in a driver that cleans up.
__attribute__((destructor)) void end() {
  const Fault& f = fault();
  if (f.here && f.kind == "hang" && f.phase == "exit") sleep_for(300);
}

}  // namespace

namespace gloo {

void allreduce(const AllreduceOptions& options) {
  static const auto real = next<void(const AllreduceOptions&)>("_ZN4gloo9allreduceERKNS_16AllreduceOptionsE");
  come_to_call();
  if (!is_due("skip")) real(options);
}

void allgather(AllgatherOptions& options) {
  static const auto real = next<void(AllgatherOptions&)>("_ZN4gloo9allgatherERNS_16AllgatherOptionsE");
  come_to_call(options.in ? std::string_view(static_cast<const char*>(options.in->ptr), options.in->size) : "");
  if (!is_due("skip")) real(options);
}

void alltoall(AlltoallOptions& options) {
  static const auto real = next<void(AlltoallOptions&)>("_ZN4gloo8alltoallERNS_15AlltoallOptionsE");
  come_to_call();
  if (!is_due("skip")) real(options);
}

void barrier(BarrierOptions& options) {
  static const auto real = next<void(BarrierOptions&)>("_ZN4gloo7barrierERNS_14BarrierOptionsE");
  come_to_call();
  if (!is_due("skip")) real(options);
}

// A length that is one too large makes this rank expect more than the others send.
void broadcast(BroadcastOptions& options) {
  static const auto real = next<void(BroadcastOptions&)>("_ZN4gloo9broadcastERNS_16BroadcastOptionsE");
  come_to_call();
  real(options);
  if (options.elements * options.elementSize == sizeof(std::int64_t) && is_due("unequal"))
    ++*static_cast<std::int64_t*>(options.out->ptr);
}

}  // namespace gloo

// Simulates a slow disk: all files together take longer than the launcher waits for a rank that does nothing.
extern "C" int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  if (fault().here && fault().kind == "slow_disk" && is_phase(fault().phase)) sleep_for(1);
  return real(descriptor);
}

// Simulates a long computation: this rank's own thread asks for the time between micro-batches.
extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  static const auto real = next<int(clockid_t, timespec*)>("clock_gettime");
  static std::atomic<bool> asks = false;
  if (fault().here && fault().kind == "late" && gettid() == getpid() && !asks.exchange(true)) {
    if (is_due("late")) sleep_for(15);
    asks = false;
  }
  return real(clock, now);
}
