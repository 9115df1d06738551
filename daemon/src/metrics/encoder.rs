//! Writes one metric at a time, in the few shapes we use.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use purelb_core::histogram::Histogram;

/// Labels of one series. Names are ours; values out of fixed lists, or objects'.
pub type MetricLabels<const N: usize> = [(&'static str, String); N];

pub struct MetricsEncoder<'a>(pub DescriptorEncoder<'a>);

impl MetricsEncoder<'_> {
    pub fn gauge(&mut self, name: &str, help: &str, value: usize) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    pub fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        ConstGauge::new(value).encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (MetricLabels<N>, usize)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// `_total` is appended.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    /// One series for each value of the label, also where it is 0: a counter that
    /// first appears with a 1 shows no increase.
    pub fn counters<const M: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: [(&'static str, u64); M],
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, count) in values {
            ConstCounter::new(count).encode(encoder.encode_family(&[(label, value)])?)?;
        }
        Ok(())
    }

    /// Histograms that differ in one label. Values are divided by `unit`.
    pub fn histograms<const M: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: [(&'static str, &Histogram); M],
        bounds: &[u64],
        unit: f64,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (value, counted) in values {
            let (sum, buckets) = buckets(counted, bounds, unit);
            let labels = [(label, value)];
            encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                counted.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        counted: &Histogram,
        bounds: &[u64],
        unit: f64,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let (sum, buckets) = buckets(counted, bounds, unit);
        encoder.encode_histogram::<NoLabelSet>(sum, counted.count(), &buckets, None)
    }
}

#[allow(clippy::cast_precision_loss, reason = "bounds are small, and a sum of times is an approximation")]
fn buckets(counted: &Histogram, bounds: &[u64], unit: f64) -> (f64, Vec<(f64, u64)>) {
    let bounds = bounds.iter().map(|bound| *bound as f64 / unit).chain([f64::INFINITY]);
    (counted.sum as f64 / unit, bounds.zip(counted.counts).collect())
}
