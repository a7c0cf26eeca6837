/** The latest requests of a tab, each with its cost; one of them fills the form again. */
import { useSignal } from '@preact/signals';
import { usdDecimals } from '../format.ts';
import { Time, Usd } from '../parts/values.tsx';
import { type Entry, type RequestBody, readHistory, writeHistory } from '../request-history.ts';
import { session } from '../session.ts';
import type { Cost } from '../shapes.ts';

const MAX_ENTRIES = 20;
/** A request with more text is not stored. */
const MAX_ENTRY_CHARACTERS = 20_000;

export interface SentRequest extends Pick<Entry, 'summary' | 'body' | 'requestId'> {
  readonly cost: Partial<Cost> | undefined;
}

export interface History {
  readonly entries: readonly Entry[];
  readonly add: (sent: SentRequest) => void;
  readonly clear: () => void;
}

export function useHistory(kind: string): History {
  const accountId = session.value?.accountId ?? '';
  const entries = useSignal(readHistory(accountId, kind));
  const set = (next: readonly Entry[]): void => {
    entries.value = next;
    writeHistory(accountId, kind, next);
  };
  return {
    entries: entries.value,
    add: ({ summary, body, requestId, cost }) => {
      const usd = cost === undefined ? undefined : (cost.usd ?? 0) + (cost.diem ?? 0);
      const entry: Entry = { time: new Date().toISOString(), summary, body, requestId, usd };
      if (JSON.stringify(entry).length > MAX_ENTRY_CHARACTERS) return;
      set([entry, ...entries.peek()].slice(0, MAX_ENTRIES));
    },
    clear: () => set([]),
  };
}

interface HistoryListProps {
  readonly history: History;
  readonly restore?: (body: RequestBody) => void;
}

export function HistoryList({ history: { entries, clear }, restore }: HistoryListProps) {
  if (entries.length === 0) return null;
  const decimals = usdDecimals(entries.map(({ usd }) => usd));
  return (
    <section>
      <h2>Your latest requests</h2>
      <ul class="jobs" aria-label="Latest requests">
        {entries.map(({ time, summary, body, requestId, usd }) => (
          <li key={requestId}>
            <Time iso={time} />
            {body === undefined || restore === undefined ? (
              <span class="text">{summary}</span>
            ) : (
              <button type="button" class="link text" onClick={() => restore(body)}>
                {summary}
              </button>
            )}
            <a class="num" href={`/console/activity?open=${requestId}`}>
              {usd === undefined ? 'Receipt' : <Usd value={usd} decimals={decimals} />}
            </a>
          </li>
        ))}
      </ul>
      <p class="row">
        <button type="button" class="small" onClick={clear}>
          Delete this list
        </button>
        <span class="hint">Stored in this browser until you sign out.</span>
      </p>
    </section>
  );
}
