/** The page of backups: the last success, and each attempt by schedule or command. */
import { bytesText } from '../format.ts';
import { PageHead } from '../parts/page-head.tsx';
import { State, Tile, Time } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { BackupsResponse } from '../shapes.ts';

type Run = BackupsResponse['data'][number];

const COLUMNS: readonly Column<Run>[] = [
  { name: 'Started', show: ({ startedAt }) => <Time iso={startedAt} /> },
  {
    name: 'Result',
    show: ({ endedAt, problem }) => (
      <>
        <State value={endedAt === null ? 'running' : problem === null ? 'stored' : 'failed'} />
        {problem !== null && <span class="under text">{problem}</span>}
      </>
    ),
  },
  { name: 'Location', kind: 'wide', show: ({ location }) => <code>{location || '–'}</code> },
  figure('Size', ({ bytes }) => (bytes === 0 ? '–' : bytesText(bytes))),
];

function ScheduleLink() {
  return (
    <>
      Set <code>backup.to</code> in the <a href="/console/operator/configuration">configuration</a>
    </>
  );
}

export function Backups() {
  const backups = useCall<BackupsResponse>('/admin/backups');
  return (
    <>
      <PageHead
        title="Backups"
        lead="Each backup is a copy of the database that passed an audit, with the configuration."
      />
      <Loaded from={backups}>
        {({ data, isScheduled, lastSuccessAt }) => (
          <>
            <dl class="tiles">
              <Tile name="Last success" tone={lastSuccessAt === null ? 'warn' : undefined}>
                {lastSuccessAt === null ? 'Never' : <Time iso={lastSuccessAt} />}
              </Tile>
              <Tile
                name="Schedule"
                tone={isScheduled ? undefined : 'warn'}
                note={isScheduled ? undefined : <ScheduleLink />}
              >
                {isScheduled ? 'On' : 'Off'}
              </Tile>
            </dl>
            <section>
              <h2>Attempts</h2>
              {data.length === 0 ? (
                <Empty title="There is no backup yet">
                  <p>
                    Run <code>farebox backup --to ./backups</code>, or set <code>backup.to</code> in
                    the configuration for a daily one.
                  </p>
                </Empty>
              ) : (
                <Table
                  label="Backups"
                  rows={data}
                  keyOf={({ startedAt }) => startedAt}
                  columns={COLUMNS}
                />
              )}
            </section>
          </>
        )}
      </Loaded>
    </>
  );
}
