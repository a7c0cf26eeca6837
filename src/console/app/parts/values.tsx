/** How values are shown: money, times, ids, states; each with its exact form within reach. */
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { agoText, shortId, timeText, usdText, utcText } from '../format.ts';
import { announce } from './announce.tsx';

/** An exact amount of USD. */
export function Usd({ value, least = 2 }: { value: number | string; least?: number }) {
  return <span class="num">{usdText(value, least)}</span>;
}

/** The viewer's time, with UTC on hover and for those who listen. */
export function Time({ iso, ago = false }: { iso: string | null | undefined; ago?: boolean }) {
  if (iso === null || iso === undefined) return <span class="soft">–</span>;
  return (
    <time dateTime={iso} title={utcText(iso)} class="num">
      {ago ? agoText(iso) : timeText(iso)}
    </time>
  );
}

/** A long id, cut in its middle; the whole of it is copied. */
export function Id({ value, ends = 6 }: { value: string; ends?: number }) {
  return (
    <code class="id" title={value}>
      {shortId(value, ends)}
    </code>
  );
}

const TONES: Readonly<Record<string, string>> = {
  completed: 'good',
  credited: 'good',
  ok: 'good',
  closed: 'good',
  COMPLETED: 'good',
  failed: 'bad',
  FAILED: 'bad',
  wrong: 'bad',
  open: 'warn',
  expired: 'warn',
  aborted: 'warn',
  sent: 'warn',
  note: 'warn',
  'half-open': 'warn',
};

/** A state in a word, coloured by what it means. */
export function State({ value, tone }: { value: string; tone?: string }) {
  return <span class={`state ${tone ?? TONES[value] ?? ''}`}>{value}</span>;
}

const COPIED_MS = 1_500;

/** Copies a text; says so where it was pressed and to those who listen. */
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [said, setSaid] = useState<string>();
  useEffect(() => {
    if (said === undefined) return undefined;
    const timer = setTimeout(() => setSaid(undefined), COPIED_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid('Copied');
      announce('Copied');
    } catch {
      // Without the permission, or over plain HTTP, there is no clipboard.
      setSaid('Select it and copy');
    }
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {said ?? label}
    </button>
  );
}

type Fact = readonly [name: string, value: ComponentChildren];

/** Names and their values. */
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

/** One figure that matters. */
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
  /** Whether its end is bad, as that of a cap is and that of work is not. */
  readonly isCap?: boolean;
}

/** How much of a cap is used, or of some work done. */
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
