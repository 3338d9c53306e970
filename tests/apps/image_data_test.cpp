#include "apps/vision/image_data.h"

#include "core/check.h"
#include "tests/support/image_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::apps {
namespace {

using test::error_of;

class ImageDataTest : public testing::Test {
 protected:
  ImageDataTest() {
    test::spill(folder_ / "images", test::idx_bytes({20, 2, 2}, test::noise_bytes(80)));
    test::spill(folder_ / "labels", test::idx_bytes({20}, std::string(20, '\2')));
    test::spill(folder_ / "more", test::idx_bytes({3, 2, 2}, test::noise_bytes(12)));
    test::spill(folder_ / "more_labels", test::idx_bytes({3}, std::string(3, '\1')));
  }
  std::string idx() { return "idx:" + (folder_ / "images") + "," + (folder_ / "labels"); }
  test::TempFolder folder_;
};

TEST_F(ImageDataTest, LoadsEveryKind) {
  const ImageData synthetic = load_image_data(
      {.spec = "synthetic:0.2,size=24,channels=1,classes=4,samples=100,seed=3", .val_samples = 7});
  EXPECT_EQ(synthetic.source->samples(), 100);
  EXPECT_EQ(synthetic.source->held_out(), 7);
  EXPECT_EQ(synthetic.source->schema().width, 24);
  EXPECT_EQ(synthetic.source->schema().classes, 4);
  ASSERT_TRUE(synthetic.best);
  EXPECT_NEAR(synthetic.best->accuracy, 0.85, 1e-12);

  const ImageData split = load_image_data({.spec = idx(), .val_fraction = 0.25});
  EXPECT_EQ(split.source->samples(), 15);
  EXPECT_EQ(split.source->held_out(), 5);
  EXPECT_EQ(split.source->schema().classes, 3);
  EXPECT_FALSE(split.best);
  const ImageData own =
      load_image_data({.spec = idx() + "," + (folder_ / "more") + "," + (folder_ / "more_labels")});
  EXPECT_EQ(own.source->samples(), 20);
  EXPECT_EQ(own.source->held_out(), 3);

  for (int batch = 1; batch <= 5; ++batch)
    test::spill(folder_ / fmt::format("data_batch_{}.bin", batch), test::cifar_record(1, batch));
  test::spill(folder_ / "test_batch.bin", test::cifar_record(1, 0));
  const ImageData cifar = load_image_data({.spec = "cifar10:" + folder_.path()});
  EXPECT_EQ(cifar.source->samples(), 5);
  EXPECT_EQ(cifar.source->held_out(), 1);
  EXPECT_EQ(cifar.source->schema().classes, 10);
}

TEST_F(ImageDataTest, MistakesSayWhatIsExpected) {
  const auto usage = [&](const std::string& spec, const std::string& part) {
    const std::string text = error_of([&] { load_image_data({.spec = spec}); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  usage("syntetic", "did you mean synthetic?");
  usage("mnist:x", "expected synthetic, idx:IMAGES,LABELS or cifar10:DIR, got 'mnist:x'");
  usage("idx", "expected idx:IMAGES,LABELS");
  usage("idx:a", "expected idx:IMAGES,LABELS");
  usage("idx:a,", "expected idx:IMAGES,LABELS");
  usage("idx:a,b,c", "expected idx:IMAGES,LABELS");
  usage("cifar10:", "expected cifar10:DIR");
  usage("synthetic:size=23", "size");
  usage("synthetic:sise=32", "expected label_noise");
  usage("synthetic:channels=2", "channels");
  const auto file = [&](const std::string& spec, const std::string& part) {
    const std::string text = error_of<SystemError>([&] { load_image_data({.spec = spec}); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  file("idx:" + (folder_ / "labels") + "," + (folder_ / "images"), "expected images");
  file("idx:" + (folder_ / "images") + "," + (folder_ / "none"), "No such file");
  file("cifar10:" + folder_.path(), "data_batch_1.bin");
}

TEST_F(ImageDataTest, HelpNamesEveryKind) {
  for (const char* kind : {"synthetic", "idx", "cifar10"}) {
    EXPECT_NE(image_data_help().find(kind), std::string::npos);
    EXPECT_EQ(image_data_kind(kind + std::string(":x")), kind);
  }
}

}  // namespace
}  // namespace lockstep::apps
