// Whether sanitizers watch: then everything takes several times as long, and tests take fewer cases of the same kinds.
#pragma once

namespace ranvier::support {

#ifdef RANVIER_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace ranvier::support
