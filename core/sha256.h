#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // of OpenSSL

namespace qtrain {

/// SHA-256 (FIPS 180-4) of data that is added in chunks; their boundaries do not matter.
class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  /// 64 hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;
  static Context made();

  Context context_;
};

std::string sha256_of(std::string_view text);

/// Hashes the contents of a regular file. `between` is called from time to time and may throw to stop. Throws
/// ErrorKind::input as MappedFile does.
std::string sha256_of_file(const std::filesystem::path& file, const std::function<void()>& between = {});

}  // namespace qtrain
