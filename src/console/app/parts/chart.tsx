/**
 * A chart of stacked bars by day, and its figures as a table for screen readers. uPlot draws it and is
 * loaded with the first chart.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import { countText, roughCount, shortDay, usdAxis, usdDecimals } from '../format.ts';
import { useModels } from '../lookups.ts';
import { colours } from '../theme.ts';
import { Table, figure, money } from './table.tsx';
import { Usd } from './values.tsx';

export interface Series {
  readonly name: string;
  /** One value a day. */
  readonly values: readonly number[];
}

interface DayChartProps {
  readonly label: string;
  /** `YYYY-MM-DD`, oldest first. */
  readonly days: readonly string[];
  readonly series: readonly Series[];
  /** The values are USD instead of counts. */
  readonly isMoney: boolean;
}

const HEIGHT = 200;
/** Space before the first and after the last bar, in seconds. */
const HALF_DAY = 43_200;
/** The last colour is for all series beyond it. */
export const SERIES_COLOURS = 7;

export function DayChart({ label, days, series, isMoney }: DayChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number>();
  const palette = colours.value;
  const models = useModels();
  useEffect(() => {
    const { current } = box;
    if (current === null) return undefined;
    let end: (() => void) | undefined;
    let isOver = false;
    void draw(current, { days, series, isMoney, onDay: setAt }).then((stop) => {
      if (isOver) stop();
      else end = stop;
    });
    return () => {
      isOver = true;
      end?.();
    };
  }, [days, series, palette]);
  const shown = at === undefined ? undefined : days[at];
  const figures = series.map(({ values }) => (at === undefined ? sum(values) : (values[at] ?? 0)));
  const decimals = usdDecimals(figures);
  return (
    <figure class="chart">
      <div ref={box} class="plot" aria-hidden="true" style={{ height: `${HEIGHT}px` }} />
      <figcaption>
        <ul class="legend">
          {series.map(({ name }, index) => (
            <li key={name}>
              <span class="swatch" style={{ background: `var(${colourOf(index)})` }} />
              <span class="name" title={name}>
                {models.find(({ id }) => id === name)?.model_spec.name ?? name}
              </span>
              <span class="num soft">
                {isMoney ? (
                  <Usd value={figures[index]} decimals={decimals} />
                ) : (
                  countText(figures[index] ?? 0)
                )}
              </span>
            </li>
          ))}
        </ul>
        <p class="soft num">
          {shown === undefined ? `${days.length} days` : `${shortDay(shown)} (UTC)`}
        </p>
      </figcaption>
      <details class="figures">
        <summary>Figures</summary>
        <Table
          label={label}
          rows={days.map((day, index) => ({ day, index }))}
          keyOf={({ day }) => day}
          columns={[
            { name: 'Day (UTC)', show: ({ day }) => <span class="num">{day}</span> },
            ...series.map(({ name, values }) =>
              isMoney
                ? money<{ index: number }>(name, ({ index }) => values[index] ?? 0)
                : figure<{ index: number }>(name, ({ index }) => countText(values[index] ?? 0)),
            ),
          ]}
        />
      </details>
    </figure>
  );
}

/** The custom property of the colour of a series. */
function colourOf(series: number): string {
  return `--chart-${Math.min(series, SERIES_COLOURS - 1)}`;
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

interface Drawing extends Pick<DayChartProps, 'days' | 'series' | 'isMoney'> {
  readonly onDay: (at: number | undefined) => void;
}

/** Draws into `box` and follows its width. Resolves to a function that removes the chart. */
async function draw(box: HTMLElement, drawing: Drawing): Promise<() => void> {
  const { default: UPlot } = await import('uplot');
  const { days, series, isMoney, onDay } = drawing;
  const style = getComputedStyle(box);
  // Resolves a custom property to a colour of the current theme.
  const colour = (name: string): string => {
    box.style.color = `var(${name})`;
    return style.color;
  };
  const times = days.map((day) => Date.parse(`${day}T00:00:00Z`) / 1_000);
  const stacked = stack(series);
  const axis = {
    stroke: colour('--soft'),
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { show: false },
  };
  const font = `11px ${style.fontFamily}`;
  const bars = UPlot.paths.bars?.({ size: [0.72, 42], radius: 0.1 });
  const plot = new UPlot(
    {
      width: Math.max(200, box.clientWidth),
      height: HEIGHT,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      cursor: { points: { show: false }, drag: { x: false, y: false }, y: false },
      scales: {
        x: { time: true, range: (_plot, min, max) => [min - HALF_DAY, max + HALF_DAY] },
        y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.08 : 1] },
      },
      tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1_000), 'UTC'),
      axes: [
        {
          ...axis,
          font,
          grid: { show: false },
          space: 60,
          size: 28,
          values: (_plot, splits) =>
            splits.map((one) => shortDay(new Date(one * 1_000).toISOString().slice(0, 10))),
          incrs: [1, 2, 3, 5, 7, 14, 30, 60, 90].map((count) => count * 86_400),
        },
        {
          ...axis,
          font,
          size: 64,
          space: 36,
          values: (_plot, splits) => (isMoney ? usdAxis(splits) : splits.map(roughCount)),
        },
      ],
      // The tallest bar is drawn first, so that it does not cover the others.
      series: [
        {},
        ...stacked.map((_values, index) => {
          const at = stacked.length - 1 - index;
          const fill = colour(colourOf(at));
          return {
            fill,
            stroke: fill,
            width: 0,
            points: { show: false },
            ...(bars && { paths: bars }),
          };
        }),
      ],
      hooks: { setCursor: [({ cursor }) => onDay(cursor.idx ?? undefined)] },
    },
    [times, ...stacked.toReversed()],
    box,
  );
  const follow = new ResizeObserver(() =>
    plot.setSize({ width: Math.max(200, box.clientWidth), height: HEIGHT }),
  );
  follow.observe(box);
  return () => {
    follow.disconnect();
    plot.destroy();
  };
}

/** Adds each series to the sum of the series before it. */
function stack(series: readonly Series[]): number[][] {
  const sums: number[] = [];
  return series.map(({ values }) =>
    values.map((value, index) => (sums[index] = (sums[index] ?? 0) + value)),
  );
}
