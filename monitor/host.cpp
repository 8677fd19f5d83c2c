#include "monitor/host.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "monitor/control_group.h"

namespace qtrain::monitor {
namespace {

namespace fs = std::filesystem;

/// The readable part of a file: a file in /proc may open but fail to read if it belongs to another user or if the
/// process has just ended.
std::string contents(const fs::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The value in a line "name: value"; files in /proc give sizes in kB.
std::optional<std::uint64_t> value_in(const std::string& text, std::string_view name) {
  const auto at = ("\n" + text).find("\n" + std::string(name) + ":");
  if (at == std::string::npos) return {};
  return std::strtoull(text.c_str() + at + name.size() + 1, nullptr, 10);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

/// Parses /proc/PID/stat. The name is in parentheses and may contain any character. Source: proc(5).
std::optional<ProcessReading> process_of(const std::string& line, double page) {
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  std::istringstream rest(line.substr(close + 1));
  std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  constexpr std::size_t kState = 0, kParent = 1, kUser = 11, kSystem = 12, kStarted = 19, kPages = 21;
  if (fields.size() <= kPages) return {};
  const auto field = [&](std::size_t i) { return std::strtoull(fields[i].c_str(), nullptr, 10); };
  return ProcessReading{.pid = std::strtoll(line.c_str(), nullptr, 10),
                        .parent = static_cast<std::int64_t>(field(kParent)),
                        .started = field(kStarted),
                        .name = printable(std::string_view(line).substr(open + 1, close - open - 1)),
                        .ended = fields[kState] == "Z" || fields[kState] == "X",
                        .cpu_ticks = field(kUser) + field(kSystem),
                        .rss_bytes = static_cast<double>(field(kPages)) * page};
}

std::vector<std::int64_t> numbers_in(const fs::path& folder) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (const auto number = number_of(it->path().filename().string())) numbers.push_back(*number);
  return numbers;
}

bool locks(const fs::path& root, std::int64_t pid, std::int64_t fd) {
  const fs::path info = root / "proc" / std::to_string(pid) / "fdinfo" / std::to_string(fd);
  return contents(info).find("FLOCK") != std::string::npos;
}

}  // namespace

double HostReading::usable_cores() const {
  return std::min(static_cast<double>(processors), group.cpu_limit.value_or(processors));
}

double HostReading::usable_memory() const {
  return std::min(memory_total, group.memory_limit.value_or(memory_total));
}

Host::Host(fs::path root)
    : root_(std::move(root)),
      ticks_(static_cast<double>(::sysconf(_SC_CLK_TCK))),
      page_(static_cast<double>(::sysconf(_SC_PAGESIZE))) {}

std::optional<ProcessReading> Host::process(std::int64_t pid) const {
  const fs::path folder = root_ / "proc" / std::to_string(pid);
  std::optional<ProcessReading> found = process_of(contents(folder / "stat"), page_);
  if (!found || found->ended) return {};
  const std::string io = contents(folder / "io");  // not readable for another user's process
  found->read_bytes = value_in(io, "read_bytes");
  found->written_bytes = value_in(io, "write_bytes");
  return found;
}

std::vector<ProcessReading> Host::all_processes() const {
  std::vector<ProcessReading> all;
  for (const std::int64_t pid : numbers_in(root_ / "proc"))
    if (auto p = process_of(contents(root_ / "proc" / std::to_string(pid) / "stat"), page_); p && !p->ended)
      all.push_back(std::move(*p));  // some may have ended since the folder was read
  return all;
}

std::vector<ProcessReading> Host::family_of(std::int64_t pid) const {
  std::set<std::int64_t> family{pid};
  const std::vector<ProcessReading> all = all_processes();
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const ProcessReading& p : all)
      if (family.contains(p.parent)) family.insert(p.pid);
  }
  std::vector<ProcessReading> found;
  for (const std::int64_t member : family)
    if (auto p = process(member)) found.push_back(std::move(*p));
  const auto watched = std::find_if(found.begin(), found.end(), [&](const auto& p) { return p.pid == pid; });
  if (watched == found.end()) return {};
  std::rotate(found.begin(), watched, watched + 1);
  return found;
}

// Skips partitions and devices on top of other disks or memory, which would count twice.
void Host::read_disks(HostReading& reading) const {
  constexpr std::uint64_t kSector = 512;  // independent of the disk's own sector size
  std::ifstream in(root_ / "proc/diskstats");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t number = 0, sectors_read = 0, sectors_written = 0;
    words >> number >> number >> name >> number >> number >> sectors_read >> number >> number >> number >>
        sectors_written;
    const auto starts = [&](std::string_view with) { return name.starts_with(with); };
    if (!words || starts("loop") || starts("ram") || starts("zram") || starts("dm-") || starts("md")) continue;
    std::error_code error;
    if (!fs::exists(root_ / "sys/block" / name, error)) continue;
    reading.disk_read += sectors_read * kSector;
    reading.disk_written += sectors_written * kSector;
  }
}

// Skips bridges and tunnels, whose bytes a device also counts, unless there is nothing else, as in a container.
void Host::read_network(HostReading& reading) const {
  struct Counters {
    std::uint64_t in = 0, out = 0;
    bool any = false;
  } devices, all;
  std::ifstream file(root_ / "proc/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '));
    std::istringstream words(line.substr(colon + 1));
    const std::vector<std::uint64_t> fields{std::istream_iterator<std::uint64_t>(words), {}};
    if (name == "lo" || fields.size() < 9) continue;
    std::error_code error;
    const bool device = fs::exists(root_ / "sys/class/net" / name / "device", error);
    for (Counters* c : {&all, device ? &devices : nullptr}) {
      if (c == nullptr) continue;
      c->in += fields[0];
      c->out += fields[8];
      c->any = true;
    }
  }
  const Counters& counted = devices.any ? devices : all;
  reading.network_in = counted.in;
  reading.network_out = counted.out;
}

GroupReading Host::read_group(std::optional<std::int64_t> pid) const {
  const std::string who = pid ? std::to_string(*pid) : "self";
  return read_control_group(root_ / "sys/fs/cgroup", contents(root_ / "proc" / who / "cgroup"));
}

HostReading Host::read(double seconds, std::optional<std::int64_t> watched) const {
  HostReading reading{.seconds = seconds, .processors = 0};
  std::ifstream stat(root_ / "proc/stat");
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    if (!line.starts_with("cpu ")) {
      ++reading.processors;
      continue;
    }
    std::istringstream words(line.substr(4));
    std::vector<std::uint64_t> ticks{std::istream_iterator<std::uint64_t>(words), {}};
    ticks.resize(8);  // user nice system idle iowait irq softirq steal; the rest is already in user and nice
    for (const std::uint64_t t : ticks) reading.cpu_all += t;
    reading.cpu_busy = reading.cpu_all - ticks[3] - ticks[4];
  }
  reading.processors = std::max(reading.processors, 1);
  const std::string memory = contents(root_ / "proc/meminfo");
  reading.memory_total = 1024.0 * static_cast<double>(value_in(memory, "MemTotal").value_or(0));
  reading.memory_used =
      reading.memory_total - 1024.0 * static_cast<double>(value_in(memory, "MemAvailable").value_or(0));
  read_disks(reading);
  read_network(reading);
  reading.group = read_group(watched);
  if (watched) reading.processes = family_of(*watched);
  return reading;
}

std::optional<std::int64_t> Host::holder_of(const fs::path& file) const {
  std::error_code error;
  const fs::path wanted = fs::canonical(file, error);
  if (error) return {};
  for (const std::int64_t pid : numbers_in(root_ / "proc")) {
    const fs::path folder = root_ / "proc" / std::to_string(pid) / "fd";
    for (const std::int64_t fd : numbers_in(folder)) {
      if (fs::read_symlink(folder / std::to_string(fd), error) != wanted || !locks(root_, pid, fd)) continue;
      const auto holder = process(pid), parent = holder ? process(holder->parent) : std::nullopt;
      return parent && parent->name == holder->name ? holder->parent : pid;
    }
  }
  return {};
}

}  // namespace qtrain::monitor
