/** Tables of lists, complete or loaded page by page. */
import type { ComponentChildren } from 'preact';
import type { CursorList } from '../cursor-list.ts';
import { type UsdAmount, exactDecimals, usdDecimals } from '../format.ts';
import type { Resource } from '../resource.ts';
import { Failure, Loaded } from './loaded.tsx';
import { Usd } from './values.tsx';

export interface Column<T> {
  readonly name: string;
  /** `decimals`: those of the amounts in this column. */
  readonly show: (row: T, decimals: number) => ComponentChildren;
  readonly decimals?: (rows: readonly T[]) => number;
  /** `figure` aligns to the right; `wide` hides the column on a phone. */
  readonly kind?: 'figure' | 'wide' | 'figure wide';
}

export function figure<T>(
  name: string,
  text: (row: T) => ComponentChildren,
  isWide?: 'wide',
): Column<T> {
  const kind = isWide === undefined ? 'figure' : 'figure wide';
  return { name, kind, show: (row) => <span class="num">{text(row)}</span> };
}

interface MoneyOptions<T> {
  /** Hidden on a phone. */
  readonly isWide?: boolean;
  /** Shows all decimals: for prices, and for amounts that are compared. */
  readonly isExact?: boolean;
  /** Content under the amount. */
  readonly below?: (row: T) => ComponentChildren;
}

/** A column of amounts with the same number of decimals. */
export function money<T>(
  name: string,
  amount: (row: T) => UsdAmount | null,
  { isWide = false, isExact = false, below }: MoneyOptions<T> = {},
): Column<T> {
  const decimalsOf = isExact ? exactDecimals : usdDecimals;
  return {
    name,
    kind: isWide ? 'figure wide' : 'figure',
    decimals: (rows) => decimalsOf(rows.map(amount)),
    show: (row, decimals) => (
      <>
        <Usd value={amount(row)} decimals={decimals} />
        {below?.(row)}
      </>
    ),
  };
}

/** A column of secondary text, hidden on a phone. */
export function aside<T>(name: string, text: (row: T) => ComponentChildren): Column<T> {
  return { name, kind: 'wide', show: (row) => <span class="soft">{text(row)}</span> };
}

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly open?: (row: T) => void;
}

export function Table<T>({ label, columns, rows, keyOf, open }: TableProps<T>) {
  const decimals = columns.map((column) => column.decimals?.(rows) ?? 0);
  return (
    <div class="table" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(({ name, kind }) => (
              <th key={name} scope="col" class={kind}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr
              key={keyOf(row)}
              class={open === undefined ? undefined : 'opens'}
              onClick={(event) => {
                if (open !== undefined && !isControl(event.target)) open(row);
              }}
            >
              {columns.map(({ name, show, kind }, at) => (
                <td key={name} class={kind}>
                  {show(row, decimals[at] ?? 0)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('a,button,input,select,dialog') !== null;
}

interface CursorTableProps<T> extends Omit<TableProps<T>, 'rows'> {
  readonly list: CursorList<T>;
  readonly empty: ComponentChildren;
}

/** A cursor list as a table, with a button for the next page. */
export function CursorTable<T>({ list, empty, ...table }: CursorTableProps<T>) {
  const { first, rows, more, moreError, isLoadingMore } = list;
  return (
    <>
      {first.error === undefined && moreError !== undefined && <Failure error={moreError} />}
      <Loaded from={first}>
        {() => (rows.length === 0 ? empty : <Table {...table} rows={rows} />)}
      </Loaded>
      {more !== undefined && (
        <p class="more">
          <button type="button" disabled={isLoadingMore} onClick={more}>
            {isLoadingMore ? 'Loading…' : 'Show more'}
          </button>
        </p>
      )}
    </>
  );
}

interface LoadedTableProps<T> extends Omit<TableProps<T>, 'rows'> {
  readonly from: Resource<{ readonly data: readonly T[] }>;
  readonly empty?: ComponentChildren;
}

export function LoadedTable<T>({ from, empty, ...table }: LoadedTableProps<T>) {
  return (
    <Loaded from={from}>
      {({ data }) =>
        data.length === 0 && empty !== undefined ? empty : <Table {...table} rows={data} />
      }
    </Loaded>
  );
}
