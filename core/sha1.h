#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // of OpenSSL

namespace qtrain {

/// SHA-1 (FIPS 180-4) of data that is added in chunks: git names its objects by it. It does not protect from forgery.
class Sha1 {
 public:
  Sha1();
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  /// 40 hexadecimal digits. Nothing can be added afterwards.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace qtrain
