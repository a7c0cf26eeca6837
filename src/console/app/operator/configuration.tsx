/** The configuration in force and what a reload would change; and `check`, what is wrong with it. */
import { CodeBlock } from '../parts/code.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { State } from '../parts/values.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { useCall } from '../resource.ts';

interface ConfigResponse {
  readonly yaml: string;
  readonly reload: {
    readonly ok: boolean;
    readonly changed: readonly string[];
    readonly restart: readonly string[];
    readonly problems: readonly string[];
  };
}

export function Configuration() {
  const config = useCall<ConfigResponse>('/admin/config');
  return (
    <>
      <PageHead title="Configuration" lead="What is in force. Secrets are masked.">
        <button type="button" disabled={config.isLoading} onClick={config.reload}>
          Look again
        </button>
      </PageHead>
      <Loaded from={config}>
        {({ yaml, reload }) => (
          <>
            <ReloadNotice reload={reload} />
            <CodeBlock title="in force" text={yaml} />
          </>
        )}
      </Loaded>
    </>
  );
}

function ReloadNotice({
  reload: { ok, changed, restart, problems },
}: Pick<ConfigResponse, 'reload'>) {
  if (!ok) {
    return (
      <Notice tone="bad">
        <p>The file on disk would be refused; the server goes on with what is in force.</p>
        <ul>
          {problems.map((problem) => (
            <li key={problem} class="text">
              {problem}
            </li>
          ))}
        </ul>
      </Notice>
    );
  }
  if (changed.length === 0 && restart.length === 0) {
    return (
      <Notice tone="good">The file on disk is what is in force: a reload changes nothing.</Notice>
    );
  }
  return (
    <Notice tone="warn">
      {changed.length > 0 && <p>A reload would change: {changed.join(', ')}.</p>}
      {restart.length > 0 && <p>After a restart only: {restart.join(', ')}.</p>}
    </Notice>
  );
}

interface CheckResponse {
  readonly ok: boolean;
  readonly findings: readonly {
    readonly what: string;
    readonly state: 'ok' | 'note' | 'wrong';
    readonly says: string;
  }[];
}

export function Check() {
  const check = useCall<CheckResponse>('/admin/check');
  return (
    <>
      <PageHead
        title="Check"
        lead="What farebox check says of this server, its engines and its chains."
      >
        <button type="button" disabled={check.isLoading} onClick={check.reload}>
          {check.isLoading ? 'Checking…' : 'Check again'}
        </button>
      </PageHead>
      <Loaded from={check}>
        {({ ok, findings }) => (
          <>
            <p class={`verdict ${ok ? 'good' : 'bad'}`} role="status">
              {ok ? 'Nothing is wrong.' : 'Something is wrong.'}
            </p>
            <ul class="findings">
              {findings.map(({ what, state, says }, at) => (
                <li key={`${at} ${what}`}>
                  <State value={state} />
                  <strong class="text">{what}</strong>
                  <span class="text">{says}</span>
                </li>
              ))}
            </ul>
          </>
        )}
      </Loaded>
    </>
  );
}
