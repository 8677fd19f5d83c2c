#include "monitor/sample_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/os/output_place.h"

namespace qtrain::monitor {
namespace {

constexpr std::string_view kOpening = "{\"samples\": [";

[[noreturn]] void fail_write(const std::filesystem::path& file) {
  fail(ErrorKind::disk, {.cause = std::generic_category().message(errno), .place = file.string()});
}

}  // namespace

SampleFile::SampleFile(std::filesystem::path file) : path_(std::move(file)) {
  if (output_place(path_).mode == WriteMode::in_place) {
    direct_.emplace(path_);
    append(std::string(kOpening));
    return;
  }
  file_ = Descriptor(::open(path_.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644));
  if (file_.get() < 0) fail_write(path_);
  write(std::string(kOpening) + "]}\n");
  end_ = static_cast<std::int64_t>(kOpening.size());
}

void SampleFile::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n =
        ::pwrite(file_.get(), text.data() + done, text.size() - done, end_ + static_cast<std::int64_t>(done));
    if (n < 0 && errno != EINTR) fail_write(path_);
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  if (::ftruncate(file_.get(), end_ + static_cast<std::int64_t>(text.size())) != 0) fail_write(path_);
}

void SampleFile::append(const std::string& text) {
  direct_->append(std::as_bytes(std::span(text)));
}

void SampleFile::add(const Json& sample, const Json& rest) {
  const std::string text = (any_ ? ",\n" : "\n") + dump_json(sample);
  const std::string members = dump_json(rest);  // "{...}"
  direct_ ? append(text) : write(text + "\n], " + members.substr(1) + "\n");
  any_ = true;
  end_ += static_cast<std::int64_t>(text.size());
}

void SampleFile::set_rest(const Json& rest) {
  const std::string text = (any_ ? "\n], " : "], ") + dump_json(rest).substr(1) + "\n";
  direct_ ? append(text) : write(text);
}

}  // namespace qtrain::monitor
