#include "emulator/block.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>

#include "emulator/memory.h"

extern "C" {
extern const char __executable_start[];  // defined by the linker
}

namespace qtrain::emulation {
namespace {

std::string file_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash ? slash + 1 : path;
}
std::string describe(const Place& place) {
  return file_name(place.file) + ":" + std::to_string(place.line);
}
std::string describe(const Index3& i) {
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}
bool same(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}
std::string hex(std::uint32_t mask) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[mask >> shift & 15];
  return text;
}
Index3 index_in(std::uint64_t i, const Index3& extent) {
  return {static_cast<unsigned>(i % extent.x), static_cast<unsigned>(i / extent.x % extent.y),
          static_cast<unsigned>(i / extent.x / extent.y)};
}
/// "rms_norm.cu:31" from the program's line table; empty if that cannot be read.
std::string source_line(const void* pc) {
  if (!pc) return {};
  const auto offset = static_cast<const char*>(pc) - __executable_start - 1;
  const std::string command = fmt::format("addr2line -e /proc/{}/exe {:#x} 2>&1", getpid(), offset);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  char line[512] = "";
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  const std::string text = read ? file_name(line) : std::string{};
  return text.find(':') == text.npos || text.find('?') != text.npos ? std::string{}
                                                                    : text.substr(0, text.find_first_of(" \n"));
}
unsigned lowest(std::uint32_t mask) {
  return static_cast<unsigned>(std::countr_zero(mask));
}
unsigned highest(std::uint32_t mask) {
  return 31u - static_cast<unsigned>(std::countl_zero(mask));
}

}  // namespace

Block::Block(int host_thread)
    : host_thread_(host_thread),
      shared_(reinterpret_cast<std::byte*>(kSharedBase + static_cast<std::size_t>(host_thread) * kSharedStretch)),
      writers_(kSharedStretch / 2) {}

std::uint64_t Block::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

void Block::enter() {
  Fiber& self = current();
  Block& block = *self.block;
  entered(block.host_);
  self.inside = 0;
  block.launch_->kernel.run(block.launch_->kernel.arguments);
  self.inside = 1;
  if (!self.copies.empty()) block.fault(self, "leaves the kernel with cp.async copies nobody waited for", self.place);
  if (!block.warpgroups_.idle(self.warp))
    block.fault(self, "leaves the kernel with products of wgmma that nobody waited for", self.place);
  block.finish(self);
}

void Block::finish(Fiber& self) {
  suspend(self, FiberState::finished);
  --alive_;
  warps_[self.warp].alive &= ~(1u << self.lane);
  const int straggler = alive_ == 0 ? warpgroups_.straggler() : -1;
  if (straggler >= 0)
    fault(*fibers_[static_cast<std::size_t>(straggler) * kWarpSize], "starts fewer products than its warpgroup",
          self.place);
  if (alive_ == 0)
    for (const std::string& what : {mbarriers_.unfinished(), registers_.unfinished()})
      if (!what.empty()) fault(self, what, self.place);
  if (!barrier_.waiting.empty()) release();
  schedule(self);
}

void Block::reset_shared() {
  const std::size_t bytes = launch_->extents.shared_bytes;
  mark(shared_, bytes, State::uninitialized);
  if (bytes != open_shared_) mark(shared_ + bytes, kSharedStretch - bytes, State::fenced);
  open_shared_ = bytes;
}

void Block::prepare(const Launch& launch, std::uint64_t number) {
  launch_ = &launch;
  number_ = number;
  index_ = index_in(number, launch.extents.blocks);
  const Index3& extent = launch.extents.threads;
  threads_ = alive_ = static_cast<int>(extent.x * extent.y * extent.z);
  order_ = settings().order;
  random_ = (settings().seed + 1) * 0x9E3779B97F4A7C15u ^ (number + launch.serial) * 0xD1B54A32D192ED03u;
  if (random_ == 0) random_ = 1;
  reset_shared();
  clocks_.reset();
  acquired_.reset();
  wait_ = {};
  barrier_ = {};
  const std::size_t warps = static_cast<std::size_t>(threads_ + kWarpSize - 1) / kWarpSize;
  warpgroups_.reset(warps);
  mbarriers_.reset();
  registers_.reset(warps);
  count_ = last_count_ = 0;
  faulted_ = false;
  while (static_cast<int>(fibers_.size()) < threads_)
    fibers_.push_back(make_fiber(host_thread_, static_cast<int>(fibers_.size())));
  warps_.assign(warps, {});
  for (unsigned i = 0; i < static_cast<unsigned>(threads_); ++i) {
    Fiber& f = *fibers_[i];
    f.block = this;
    f.index = index_in(i, extent);
    f.number = i;
    f.lane = i % kWarpSize;
    f.warp = i / kWarpSize;
    f.state = FiberState::ready;
    f.met = f.epoch = 1;
    f.copies.clear();
    f.copy_group = 0;
    ++f.proxy_fences;
    f.place = {};
    restart(f, &Block::enter);
    Warp& warp = warps_[f.warp];
    warp.lanes = warp.ready = warp.alive |= 1u << f.lane;
  }
  warp_hint_ = order_ == Order::reverse ? warps_.size() - 1 : 0;
}

void Block::run(const Launch& launch, std::uint64_t number) {
  adopt(host_);
  prepare(launch, number);
  switch_context(host_, *next());
  if (!faulted_) return;
  if (error_.place.empty()) error_.place = source_line(fault_pc_);
  fail(ErrorKind::internal, error_);
}

void Block::fault(Fiber& self, const std::string& what, Place place) {
  error_ = {.cause = std::string("kernel ") + launch_->kernel.name + ": block " + describe(index_) + " thread " +
                     describe(self.index) + " " + what,
            .place = place.line > 0 ? describe(place) : std::string{},
            .remedy = states()};
  fault_pc_ = self.pc;
  faulted_ = true;
  switch_context(self, host_);
  __builtin_unreachable();
}

std::string Block::states() const {
  std::map<std::string, std::vector<unsigned>> groups;
  for (int i = 0; i < threads_; ++i) {
    const Fiber& f = *fibers_[static_cast<std::size_t>(i)];
    std::string state = f.state == FiberState::ready ? "running" : "finished";
    if (f.state != FiberState::ready && f.state != FiberState::finished)
      state = "waiting in " + std::string(f.waits_in) + " at " + describe(f.place);
    groups[state].push_back(f.number);
  }
  std::string text = "threads";
  for (const auto& [state, numbers] : groups) {
    text += text == "threads" ? " " : "; ";
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i > 0 && i + 1 < numbers.size() && numbers[i] == numbers[i - 1] + 1 && numbers[i + 1] == numbers[i] + 1)
        continue;
      const bool range = i > 0 && numbers[i] == numbers[i - 1] + 1;
      text += fmt::format("{}{}", i == 0 ? "" : range ? "-" : ",", numbers[i]);
    }
    text += " " + state;
  }
  return text;
}

Fiber* Block::next_at_random() {
  const std::size_t first = random() % warps_.size();
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    const std::size_t w = (first + i) % warps_.size();
    if (!warps_[w].ready) continue;
    const int turn = static_cast<int>(random() % kWarpSize);
    const unsigned lane = (lowest(std::rotr(warps_[w].ready, turn)) + static_cast<unsigned>(turn)) % kWarpSize;
    return fibers_[w * kWarpSize + lane];
  }
  return nullptr;
}

Fiber* Block::next() {
  if (order_ == Order::random) return next_at_random();
  const bool forward = order_ == Order::forward;
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    if (const std::uint32_t ready = warps_[warp_hint_].ready)
      return fibers_[warp_hint_ * kWarpSize + (forward ? lowest(ready) : highest(ready))];
    const std::size_t last = warps_.size() - 1;
    warp_hint_ = forward ? (warp_hint_ == last ? 0 : warp_hint_ + 1) : (warp_hint_ == 0 ? last : warp_hint_ - 1);
  }
  return nullptr;
}

void Block::schedule(Fiber& self) {
  Fiber* to = next();
  while (!to && mbarriers_.land(*this)) to = next();
  if (to == &self) return;
  if (to) return switch_context(self, *to);
  if (alive_ > 0) {
    const auto stuck = std::find_if(fibers_.begin(), fibers_.begin() + threads_,
                                    [](const Fiber* f) { return f->state != FiberState::finished; });
    fault(self.state == FiberState::finished ? **stuck : self,
          "deadlock: no thread of the block can run" + mbarriers_.lacking(), (*stuck)->place);
  }
  switch_context(self, host_);
}

void Block::make_ready(Fiber& fiber) {
  fiber.state = FiberState::ready;
  warps_[fiber.warp].ready |= 1u << fiber.lane;
}
void Block::suspend(Fiber& fiber, FiberState state) {
  fiber.state = state;
  warps_[fiber.warp].ready &= ~(1u << fiber.lane);
}

unsigned Block::count_wait(const int* p, int value) {
  if (wait_.value != p || wait_.last != value) wait_ = {p, value, 0};
  return ++wait_.times;
}

void Block::yield(Fiber& self) {
  const int step = order_ == Order::reverse ? threads_ - 1 : 1;
  int i = order_ == Order::random ? static_cast<int>(random() % static_cast<unsigned>(threads_))
                                  : static_cast<int>(self.number);
  do {
    i = (i + step) % threads_;
  } while (fibers_[static_cast<std::size_t>(i)]->state != FiberState::ready);
  Fiber& to = *fibers_[static_cast<std::size_t>(i)];
  warp_hint_ = to.warp;
  if (&to != &self) switch_context(self, to);
}

bool Block::others_ready(const Fiber& self) const {
  for (std::size_t w = 0; w < warps_.size(); ++w)
    if ((w == self.warp ? warps_[w].ready & ~(1u << self.lane) : warps_[w].ready) != 0) return true;
  return false;
}

void Block::pause(Fiber& self, const char* what, Place place) {
  self.waits_in = what;
  self.place = place;
  suspend(self, FiberState::at_mbarrier);
  schedule(self);
}

void Block::barrier(Fiber& self, Place place) {
  Barrier& b = barrier_;
  if (!b.waiting.empty() && !same(b.place, place))
    fault(self, "is at another __syncthreads than the threads that wait at " + describe(b.place), place);
  b.place = place;
  b.waiting.push_back(&self);
  self.waits_in = "__syncthreads";
  self.place = place;
  suspend(self, FiberState::at_barrier);
  release();
  schedule(self);
}

void Block::release() {
  Barrier& b = barrier_;
  if (static_cast<int>(b.waiting.size()) < alive_) return;
  if (alive_ < threads_)
    fault(*b.waiting.front(),
          "waits for threads that have left the kernel: " + std::to_string(threads_ - alive_) + " of " +
              std::to_string(threads_),
          b.place);
  clocks_.meet();
  for (Fiber* f : b.waiting) {
    f->met = f->epoch = clocks_.epoch(f->warp);
    make_ready(*f);
  }
  last_count_ = std::exchange(count_, 0);
  b.waiting.clear();
  warp_hint_ = order_ == Order::reverse ? warps_.size() - 1 : 0;
}

int Block::count(Fiber& self, int predicate, Place place) {
  count_ += predicate != 0;
  barrier(self, place);
  return last_count_;
}

void Block::check_exchange(Fiber& self, std::uint32_t mask, const ExchangeCall& call) {
  Warp& warp = warps_[self.warp];
  const auto refuse = [&](const std::string& why) {
    fault(self, std::string("calls ") + call.name + " with mask " + hex(mask) + why, self.place);
  };
  if (!(mask >> self.lane & 1)) refuse(", which lacks its own lane");
  if (mask & ~warp.lanes) refuse(", which names lanes that do not exist");
  if (mask & ~warp.alive) refuse(", which names lanes that have left the kernel");
  const auto agrees = [&](const Fiber& other) {
    return other.act == call.act && other.mask == mask && same(other.place, self.place);
  };
  if (warp.exchanging == 0) warp.first = &self;
  warp.alike = warp.exchanging == 0 || (warp.alike && agrees(*warp.first));
  if (warp.alike) return;
  for (std::uint32_t rest = warp.exchanging & mask & ~(1u << self.lane); rest; rest &= rest - 1) {
    const Fiber& other = *fibers_[self.warp * kWarpSize + lowest(rest)];
    if (!agrees(other))
      refuse(" while lane " + std::to_string(other.lane) + " is in " + other.waits_in + " with mask " +
             hex(other.mask) + " at " + describe(other.place));
  }
}

void Block::exchange(Fiber& self, std::uint32_t mask, const ExchangeCall& call, Place place) {
  Warp& warp = warps_[self.warp];
  if (mask == ~0u) mask &= warp.lanes;
  self.place = place;
  check_exchange(self, mask, call);
  self.waits_in = call.name;
  self.mask = mask;
  self.act = call.act;
  self.argument = call.argument;
  warp.exchanging |= 1u << self.lane;
  suspend(self, FiberState::in_exchange);
  if ((warp.exchanging & mask) == mask) {
    void* arguments[kWarpSize] = {};
    for (std::uint32_t rest = mask; rest; rest &= rest - 1)
      arguments[lowest(rest)] = fibers_[self.warp * kWarpSize + lowest(rest)]->argument;
    call.act(arguments, mask);
    warp.exchanging &= ~mask;
    for (std::uint32_t rest = mask; rest; rest &= rest - 1) make_ready(*fibers_[self.warp * kWarpSize + lowest(rest)]);
  }
  schedule(self);
}

bool Block::copies_land_at_once() {
  const Timing timing = settings().copies;
  return timing == Timing::early || (timing == Timing::random && (random() & 1));
}

void Block::note_write(const Fiber& self, std::uintptr_t address, std::size_t bytes) {
  const std::size_t at = (address - reinterpret_cast<std::uintptr_t>(shared_)) / 2;
  const std::uint32_t entry = self.number | self.proxy_fences << kThreadBits;
  for (std::size_t i = at; i < at + (bytes + 1) / 2; ++i) writers_[i] = entry;
}

void Block::note_async_write(const void* p, std::size_t bytes) {
  const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(p) - shared_);
  std::fill_n(writers_.begin() + static_cast<std::ptrdiff_t>(first / 2), bytes / 2, 0);
}

void Block::require_async_fence(Fiber& self, const void* p, std::size_t bytes, Place place) {
  const auto first = static_cast<std::size_t>(static_cast<const std::byte*>(p) - shared_);
  for (std::size_t i = first / 2; i < (first + bytes) / 2; ++i) {
    const std::uint32_t entry = writers_[i], thread = entry & ((1u << kThreadBits) - 1);
    if (thread >= static_cast<unsigned>(threads_)) continue;  // of an earlier, larger block
    if (entry == 0 || fibers_[thread]->proxy_fences << kThreadBits != (entry & ~((1u << kThreadBits) - 1))) continue;
    fault(self,
          "uses shared memory at byte " + std::to_string(2 * i) + " asynchronously, which thread " +
              std::to_string(thread) + " wrote without a fence.proxy.async after it",
          place);
  }
}

void Block::join_lanes(unsigned warp, std::uint32_t mask) {
  const std::uint16_t epoch = clocks_.advance(warp);
  for (std::uint32_t rest = mask; rest; rest &= rest - 1) {
    Fiber& f = *fibers_[warp * kWarpSize + lowest(rest)];
    f.met = f.epoch = epoch;
  }
}

std::uint16_t Block::start_epoch(Fiber& self) {
  return std::exchange(self.epoch, clocks_.advance(self.warp));
}

bool Block::happened(const Fiber& self, unsigned thread, std::uint16_t epoch) const {
  if (thread == self.number) return true;
  const unsigned warp = thread / kWarpSize;
  return warp == self.warp ? epoch < self.met || clocks_.saw_thread(warp, thread, epoch)
                           : clocks_.saw(self.warp, thread, epoch);
}
bool Block::happened_in(std::uint32_t block, const Fiber& self, unsigned thread, std::uint16_t epoch) const {
  return acquired_.cover(block, thread, epoch,
                         [&](const Acquired::Entry& e) { return happened(self, e.thread, e.epoch); });
}

void Block::release_to(Fiber& self, Clocks::View& view) {
  clocks_.release({.thread = self.number, .met = self.met, .epoch = self.epoch}, view);
  start_epoch(self);
}

}  // namespace qtrain::emulation
