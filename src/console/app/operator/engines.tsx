/**
 * Engines and their replicas: health, breakers, queues, latency. Each process of the server has its
 * own view; loads are added up, and replicas stand once for each process.
 */
import { useEffect } from 'preact/hooks';
import { call } from '../api.ts';
import { countText, durationText, percentText } from '../format.ts';
import { PageHead } from '../parts/page-head.tsx';
import { State, Tile } from '../parts/show.tsx';
import { Empty, Loaded } from '../parts/states.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { useResource } from '../resource.ts';

interface Replica {
  readonly model: string;
  readonly isHealthy: boolean;
  readonly breaker: 'closed' | 'open' | 'half-open';
  readonly inFlight: number;
  readonly calls: number;
  readonly failures: number;
  readonly latencyMs: number | null;
}

interface Engine {
  readonly id: string;
  readonly source: 'configured' | 'local';
  readonly inFlight: number;
  readonly queued: number;
  readonly connections: number;
  readonly replicas: readonly Replica[];
}

interface View {
  readonly process: string;
  readonly engines: readonly Engine[];
  readonly models: readonly {
    readonly id: string;
    readonly type: string;
    readonly isReady: boolean;
    readonly replicas: readonly { readonly engine: string }[];
  }[];
}

interface EnginesAnswer extends View {
  readonly others: readonly View[];
}

const RENEW_MS = 5_000;

export function Engines() {
  const engines = useResource('engines', (signal) =>
    call<EnginesAnswer>('/admin/engines', { signal }),
  );
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) engines.reload();
    }, RENEW_MS);
    return () => clearInterval(timer);
  }, [engines.reload]);
  return (
    <>
      <PageHead
        title="Engines"
        lead="What runs the models, as the processes of the server see it; renewed every 5 seconds."
      />
      <Loaded from={engines}>
        {({ others, ...own }) => {
          const views = [own, ...others];
          const { models } = own;
          const list = engineSums(views);
          const replicas = views.flatMap(({ process, engines: seen }) =>
            seen.flatMap(({ id, replicas: all }) =>
              all.map((replica) => ({ ...replica, engine: id, process })),
            ),
          );
          const broken = replicas.filter(
            ({ breaker, isHealthy }) => breaker !== 'closed' || !isHealthy,
          ).length;
          const ready = models.filter(({ id }) =>
            views.every((view) => view.models.some((one) => one.id === id && one.isReady)),
          ).length;
          return (
            <>
              <dl class="tiles">
                <Tile name="Engines">{countText(list.length)}</Tile>
                <Tile
                  name="Models ready"
                  tone={ready < models.length ? 'warn' : undefined}
                  note={`of ${models.length}`}
                >
                  {countText(ready)}
                </Tile>
                <Tile
                  name="Replicas out"
                  tone={broken > 0 ? 'bad' : 'good'}
                  note={`of ${replicas.length}`}
                >
                  {countText(broken)}
                </Tile>
                <Tile
                  name="In flight"
                  note={`${countText(list.reduce((sum, { queued }) => sum + queued, 0))} wait`}
                >
                  {countText(list.reduce((sum, { inFlight }) => sum + inFlight, 0))}
                </Tile>
              </dl>
              {list.length === 0 ? (
                <Empty title="No engine was configured or found" />
              ) : (
                <>
                  <section>
                    <h2>Engines</h2>
                    <EngineTable engines={list} />
                  </section>
                  <section>
                    <h2>Replicas</h2>
                    <ReplicaTable replicas={replicas} hasProcesses={views.length > 1} />
                  </section>
                </>
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

type EngineSum = Omit<Engine, 'replicas'>;

/** Each engine once, with the loads of all processes. */
function engineSums(views: readonly View[]): readonly EngineSum[] {
  const sums = new Map<string, EngineSum>();
  for (const { id, source, inFlight, queued, connections } of views.flatMap((one) => one.engines)) {
    const sum = sums.get(id) ?? { id, source, inFlight: 0, queued: 0, connections: 0 };
    sums.set(id, {
      ...sum,
      inFlight: sum.inFlight + inFlight,
      queued: sum.queued + queued,
      connections: sum.connections + connections,
    });
  }
  return [...sums.values()];
}

function EngineTable({ engines }: { engines: readonly EngineSum[] }) {
  return (
    <Table
      label="Engines"
      rows={engines}
      keyOf={({ id }) => id}
      columns={[
        { name: 'Engine', show: ({ id }) => <strong class="text">{id}</strong> },
        { name: 'Source', kind: 'wide', show: ({ source }) => <span class="soft">{source}</span> },
        {
          name: 'In flight',
          kind: 'figure',
          show: ({ inFlight }) => <span class="num">{countText(inFlight)}</span>,
        },
        {
          name: 'Waiting',
          kind: 'figure',
          show: ({ queued }) => <span class="num">{countText(queued)}</span>,
        },
        {
          name: 'Connections',
          kind: 'figure wide',
          show: ({ connections }) => <span class="num">{countText(connections)}</span>,
        },
      ]}
    />
  );
}

interface SeenReplica extends Replica {
  readonly engine: string;
  readonly process: string;
}

function ReplicaTable({
  replicas,
  hasProcesses,
}: {
  replicas: readonly SeenReplica[];
  hasProcesses: boolean;
}) {
  const process: Column<SeenReplica> = {
    name: 'Process',
    kind: 'wide',
    show: (replica) => <span class="soft text">{replica.process}</span>,
  };
  return (
    <Table
      label="Replicas"
      rows={replicas}
      keyOf={({ engine, model, process: seenBy }) => `${engine} ${model} ${seenBy}`}
      columns={[
        { name: 'Model', show: ({ model }) => <span class="model">{model}</span> },
        {
          name: 'Engine',
          kind: 'wide',
          show: ({ engine }) => <span class="soft text">{engine}</span>,
        },
        ...(hasProcesses ? [process] : []),
        {
          name: 'Health',
          show: ({ isHealthy }) => (
            <State value={isHealthy ? 'healthy' : 'away'} tone={isHealthy ? 'good' : 'bad'} />
          ),
        },
        {
          name: 'Breaker',
          show: ({ breaker }) => (
            <State
              value={breaker}
              tone={{ closed: 'good', open: 'bad', 'half-open': 'warn' }[breaker]}
            />
          ),
        },
        {
          name: 'In flight',
          kind: 'figure wide',
          show: ({ inFlight }) => <span class="num">{countText(inFlight)}</span>,
        },
        {
          name: 'Calls',
          kind: 'figure wide',
          show: ({ calls }) => <span class="num">{countText(calls)}</span>,
        },
        {
          name: 'Failed',
          kind: 'figure wide',
          show: ({ calls, failures }) => (
            <span class="num">
              {countText(failures)}{' '}
              {calls > 0 && <span class="soft">({percentText(failures, calls)})</span>}
            </span>
          ),
        },
        {
          name: 'Latency',
          kind: 'figure',
          show: ({ latencyMs }) => <span class="num">{durationText(latencyMs)}</span>,
        },
      ]}
    />
  );
}
