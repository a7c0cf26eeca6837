/** Where this key or wallet is signed in, and the end of each of these sessions. */
import { ApiError, call } from '../api.ts';
import { toast } from '../parts/announce.tsx';
import { useAction } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { Id, State, Time } from '../parts/values.tsx';
import { type Column, LoadedTable } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import { signOut } from '../session.ts';

interface SessionItem {
  readonly id: string;
  readonly kind: 'key' | 'wallet';
  readonly keyId: string | null;
  readonly wallet: string | null;
  readonly isCurrent: boolean;
  readonly createdAt: string;
  readonly lastUsedAt: string;
  readonly expiresAt: string;
  readonly userAgent: string | null;
  readonly address: string | null;
}

export function Sessions() {
  const sessions = useCall<{ data: readonly SessionItem[] }>('/console/sessions');
  const action = useAction();
  const end = async (item: SessionItem): Promise<void> => {
    await action.run(async () => {
      try {
        if (item.isCurrent) return await signOut();
        await call(`/console/sessions/${encodeURIComponent(item.id)}`, { method: 'DELETE' });
        toast('The session is over');
        sessions.reload();
      } catch (error) {
        toast(ApiError.of(error).message, 'bad');
      }
    });
  };
  const columns: readonly Column<SessionItem>[] = [
    {
      name: 'Browser',
      show: ({ userAgent, isCurrent }) => (
        <>
          <strong title={userAgent ?? undefined}>{browserOf(userAgent)}</strong>{' '}
          {isCurrent && <State value="this one" tone="good" />}
        </>
      ),
    },
    {
      name: 'Signed in by',
      show: ({ kind, wallet, keyId }) => (
        <span class="soft">
          {kind} <Id value={wallet ?? keyId ?? ''} />
        </span>
      ),
    },
    {
      name: 'Address',
      kind: 'wide',
      show: ({ address }) => <span class="num">{address ?? '–'}</span>,
    },
    { name: 'Since', kind: 'wide', show: ({ createdAt }) => <Time iso={createdAt} /> },
    { name: 'Last used', kind: 'wide', show: ({ lastUsedAt }) => <Time iso={lastUsedAt} ago /> },
    { name: 'Ends', kind: 'wide', show: ({ expiresAt }) => <Time iso={expiresAt} ago /> },
    {
      name: 'Action',
      kind: 'figure',
      show: (item) => (
        <span class="row end">
          <button
            type="button"
            class="small"
            disabled={action.isRunning}
            onClick={() => void end(item)}
          >
            {item.isCurrent ? 'Sign out' : 'End'}
          </button>
        </span>
      ),
    },
  ];
  return (
    <>
      <PageHead
        title="Sessions"
        lead="Where you are signed in. A session that is ended is over at once."
      />
      <LoadedTable
        label="Sessions"
        from={sessions}
        lines={3}
        columns={columns}
        keyOf={({ id }) => id}
      />
    </>
  );
}

const BROWSERS = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const NAMES: Readonly<Record<string, string>> = { Edg: 'Edge', OPR: 'Opera' };
const SYSTEMS = ['Windows', 'Android', 'iPhone', 'iPad', 'Mac OS', 'Linux'];

/** `Chrome on Linux`; the whole text is in the tooltip. */
function browserOf(userAgent: string | null): string {
  if (userAgent === null || userAgent === '') return 'Unknown';
  const browser = BROWSERS.find((name) => userAgent.includes(`${name}/`));
  const system = SYSTEMS.find((name) => userAgent.includes(name));
  const name = browser === undefined ? userAgent.slice(0, 24) : (NAMES[browser] ?? browser);
  return system === undefined ? name : `${name} on ${system}`;
}
