/** Values on a page: money, times, ids, states and usage bars. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { query } from '../api.ts';
import {
  type UsdAmount,
  agoText,
  countText,
  percentText,
  shortId,
  timeText,
  usdDecimals,
  usdText,
  utcText,
} from '../format.ts';
import { BASE } from '../page-facts.ts';
import { announce } from './announce.tsx';

export function Count({ value }: { value: number }) {
  return <span class="num">{countText(value)}</span>;
}

/** A count with its share of the whole. */
export function CountOf({ part, whole }: { part: number; whole: number }) {
  return (
    <>
      {countText(part)}
      {part > 0 && <span class="soft"> ({percentText(part, whole)})</span>}
    </>
  );
}

export const NONE = <span class="soft">–</span>;

interface UsdProps {
  readonly value: UsdAmount | null | undefined;
  /** Decimals of all amounts beside it. */
  readonly decimals?: number;
}

/** An amount, with the exact amount as tooltip; a dash without one. */
export function Usd({ value, decimals = usdDecimals([value]) }: UsdProps) {
  if (value === null || value === undefined) return NONE;
  return (
    <span class="num" title={usdText(value)}>
      {usdText(value, decimals)}
    </span>
  );
}

/** A time in the time zone of the browser, with UTC as tooltip. */
export function Time({ iso, ago = false }: { iso: string | null | undefined; ago?: boolean }) {
  if (iso === null || iso === undefined) return NONE;
  return (
    <time dateTime={iso} title={utcText(iso)} class="num">
      {ago ? agoText(iso) : timeText(iso)}
    </time>
  );
}

export function Id({ value, ends = 6 }: { value: string; ends?: number }) {
  return (
    <code class="id" title={value}>
      {shortId(value, ends)}
    </code>
  );
}

export function CopyId({ value }: { value: string }) {
  return (
    <>
      <Id value={value} ends={8} /> <Copy text={value} />
    </>
  );
}

interface OpenButtonProps {
  readonly open: () => void;
  readonly isStrong?: boolean;
  readonly children: ComponentChildren;
}

/** The link in a table row that opens its drawer; it makes the row usable by keyboard. */
export function OpenButton({ open, isStrong = false, children }: OpenButtonProps) {
  return (
    <button type="button" class={isStrong ? 'link strong text' : 'link'} onClick={open}>
      {children}
    </button>
  );
}

/** Colours of states on all pages; other states are grey. */
const TONES: Readonly<Record<string, string>> = {
  COMPLETED: 'good',
  FAILED: 'bad',
  PROCESSING: 'warn',
  aborted: 'warn',
  active: 'good',
  completed: 'good',
  credited: 'good',
  delivered: 'good',
  deprecated: 'warn',
  disabled: 'bad',
  expired: 'warn',
  failed: 'bad',
  healthy: 'good',
  'not sent yet': 'warn',
  note: 'warn',
  offline: 'bad',
  ok: 'good',
  open: 'warn',
  paused: 'warn',
  pending: 'warn',
  queued: 'warn',
  ready: 'good',
  revoked: 'bad',
  running: 'warn',
  sent: 'warn',
  stored: 'good',
  stuck: 'bad',
  unavailable: 'bad',
  'used last': 'warn',
  wrong: 'bad',
};

export function State({ value, tone }: { value: string; tone?: string }) {
  return <span class={`state ${tone ?? TONES[value] ?? ''}`}>{value}</span>;
}

/** A link for untrusted URLs: http(s) only, without a referrer. */
export function SafeLink({ href, children }: { href: string; children: ComponentChildren }) {
  if (!/^https?:\/\//i.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

interface ExportCsvProps {
  /** Path of the list, below the base path. */
  readonly path: string;
  readonly filters: Readonly<Record<string, string | number>>;
  readonly isSmall?: boolean;
}

export function ExportCsv({ path, filters, isSmall = false }: ExportCsvProps) {
  const href = BASE + path + query({ ...filters, format: 'csv' });
  return (
    <a class={isSmall ? 'button small' : 'button'} href={href} download>
      Export CSV
    </a>
  );
}

const COPIED_MS = 1_500;

/** Copies a text and confirms it on the button. */
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [result, setResult] = useState<string>();
  useEffect(() => {
    if (result === undefined) return undefined;
    const timer = setTimeout(() => setResult(undefined), COPIED_MS);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setResult('Copied');
      announce('Copied');
    } catch {
      // Browsers deny the clipboard without permission and over plain HTTP.
      setResult('Select the text to copy it');
    }
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {result ?? label}
    </button>
  );
}

type Fact = readonly [name: string, value: ComponentChildren];

export function Facts({ of }: { of: readonly (Fact | false)[] }) {
  return (
    <dl class="facts">
      {of.map((fact) => {
        if (fact === false) return null;
        const [name, value] = fact;
        return (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        );
      })}
    </dl>
  );
}

interface TileProps {
  readonly name: string;
  readonly children: ComponentChildren;
  readonly note?: ComponentChildren;
  readonly tone?: 'good' | 'bad' | 'warn' | undefined;
}

export function Tile({ name, children, note, tone }: TileProps) {
  return (
    <div class={`tile ${tone ?? ''}`}>
      <dt>{name}</dt>
      <dd class="figure num">{children}</dd>
      {note !== undefined && <dd class="note">{note}</dd>}
    </div>
  );
}

interface BarProps {
  readonly part: number;
  readonly whole: number;
  readonly label: string;
  /** Warns near the end: for caps, not for progress. */
  readonly isCap?: boolean;
}

export function LabelledBar({ children, ...bar }: BarProps & { children: ComponentChildren }) {
  return (
    <div class="cap">
      <Bar {...bar} />
      <span class="num under">{children}</span>
    </div>
  );
}

export function Bar({ part, whole, label, isCap = true }: BarProps) {
  const share = whole === 0 ? 1 : Math.min(1, part / whole);
  const tone = !isCap ? '' : share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : '';
  return (
    <div
      class={`bar ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={whole}
      aria-valuenow={Math.min(part, whole)}
    >
      <span style={{ width: `${share * 100}%` }} />
    </div>
  );
}
