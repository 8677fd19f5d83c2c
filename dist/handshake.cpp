#include "dist/handshake.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "core/error.h"

/// A hello consists of kMagic, the number of the sender (u32, little-endian), and kNonce random bytes. The caller's
/// proof is an HMAC. The verdict that it gets is kWelcome and an HMAC, or kRefused and zeros.
namespace qtrain {
namespace {

constexpr std::string_view kMagic = "qtrain ranks v1\n";
constexpr std::size_t kNumber = sizeof(std::uint32_t), kNonce = 32, kProof = sizeof(Mac);
constexpr std::size_t kHello = kMagic.size() + kNumber + kNonce, kVerdict = 1 + kProof;
constexpr char kWelcome = 'y', kRefused = 'n';

std::string make_hello(std::uint32_t number) {
  std::string hello(kMagic);
  for (std::size_t i = 0; i < kNumber; ++i) hello += static_cast<char>(number >> (8 * i));
  std::array<std::byte, kNonce> nonce{};
  fill_with_randomness(nonce);
  for (const std::byte b : nonce) hello += static_cast<char>(b);
  return hello;
}

std::string text_of(const Mac& mac) {
  std::string text(mac.size(), '\0');
  std::memcpy(text.data(), mac.data(), mac.size());
  return text;
}

bool same(std::string_view a, std::string_view b) {
  const auto bytes = [](std::string_view text) {
    return std::span<const std::byte, kProof>(std::as_bytes(std::span(text.data(), text.size())));
  };
  return same_mac(bytes(a), bytes(b));
}

}  // namespace

Handshake::Handshake(Side side, const Options& options)
    : side_(side), options_(options), own_(make_hello(options.number)) {}

std::size_t Handshake::wanted() const {
  if (state_ != State::goes_on) return 0;
  const std::size_t whole = other_.empty() ? kHello : side_ == Side::called ? kProof : kVerdict;
  return whole - received_.size();
}

std::string Handshake::take(std::string_view bytes) {
  check(bytes.size() <= wanted(), "more bytes than a handshake expects");
  received_ += bytes;
  if (other_.empty()) {
    const std::size_t seen = std::min(received_.size(), kMagic.size());
    if (received_.compare(0, seen, kMagic, 0, seen) != 0) state_ = State::foreign;
  }
  if (state_ != State::goes_on || wanted() > 0) return {};
  if (other_.empty()) return take_hello();
  if (side_ == Side::called) return take_proof();
  take_verdict();
  return {};
}

std::string Handshake::take_hello() {
  other_ = std::move(received_);
  received_.clear();
  return side_ == Side::caller ? proof_of(Side::caller) : std::string();
}

std::string Handshake::take_proof() {
  state_ = same(received_, proof_of(Side::caller)) ? State::proved : State::refused;
  if (state_ == State::proved) return kWelcome + proof_of(Side::called);
  return kRefused + std::string(kProof, '\0');
}

void Handshake::take_verdict() {
  const bool proved = received_[0] == kWelcome && same(std::string_view(received_).substr(1), proof_of(Side::called));
  state_ = proved ? State::proved : State::refused;
}

std::string Handshake::proof_of(Side side) const {
  const bool calls = side_ == Side::caller;
  const std::string& from = calls ? own_ : other_;
  const std::string& to = calls ? other_ : own_;
  return text_of(options_.secret.proof((side == Side::caller ? "caller" : "called") + from + to + options_.purpose +
                                       '\n' + std::to_string(options_.port)));
}

std::uint32_t Handshake::number() const {
  check(state_ == State::proved, "the number of the other end is known only after its proof");
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < kNumber; ++i)
    number |= std::uint32_t{static_cast<unsigned char>(other_[kMagic.size() + i])} << (8 * i);
  return number;
}

}  // namespace qtrain
