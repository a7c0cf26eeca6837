/** Lists as tables that scroll on their own, and the way to more of them. */
import type { ComponentChildren } from 'preact';

export interface Column<T> {
  readonly name: string;
  readonly show: (row: T) => ComponentChildren;
  /** Figures stand to the right; `wide` columns are left out on a phone. */
  readonly kind?: 'figure' | 'wide' | 'figure wide';
}

interface TableProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  /** Opens what a row is about. */
  readonly open?: (row: T) => void;
  readonly foot?: ComponentChildren;
}

export function Table<T>({ label, columns, rows, keyOf, open, foot }: TableProps<T>) {
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
              {columns.map(({ name, show, kind }) => (
                <td key={name} class={kind}>
                  {show(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {foot !== undefined && <tfoot>{foot}</tfoot>}
      </table>
    </div>
  );
}

/** A press on a link or button of the row is not one on the row. */
function isControl(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('a,button,input,select') !== null;
}

/** The next part of a list that pages by cursor. */
export function More({ isLoading, load }: { isLoading: boolean; load: (() => void) | undefined }) {
  if (load === undefined) return null;
  return (
    <p class="more">
      <button type="button" disabled={isLoading} onClick={load}>
        {isLoading ? 'Loading…' : 'Show more'}
      </button>
    </p>
  );
}
