/** The public file of limits: rate windows, concurrency, and the log of rejections. */
export { LimitLog } from './limit-log.ts';
export { LIMITS_MIGRATIONS } from './migrations.ts';
export { LeasedWindows } from './leased-windows.ts';
export { SharedSlots } from './shared-slots.ts';
export {
  Concurrency,
  MemoryWindows,
  type RateRule,
  type Reservation,
  type Slots,
  type WindowResult,
  type WindowState,
  type Windows,
  addRateHeaders,
  bucketOf,
  rateHeaders,
  stateNow,
  stateOf,
  takeOf,
} from './process-limits.ts';
