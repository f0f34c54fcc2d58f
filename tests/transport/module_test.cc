// Which modules a build calls.
#include "transport/module.h"

#include <gtest/gtest.h>

#include <string>

namespace ranvier::transport {
namespace {

TEST(Module, of_another_build_is_refused) {
  const TransportModule own{.version = RANVIER_VERSION};
  EXPECT_TRUE(built_together(own));
  TransportModule other = own;
  other.version = "0.0.0-other";
  EXPECT_FALSE(built_together(other));
  other = own;
  ++other.abi;
  EXPECT_FALSE(built_together(other));
  other = own;
  other.options_bytes += sizeof(void*);
  EXPECT_FALSE(built_together(other));
}

}  // namespace
}  // namespace ranvier::transport
