/** The pages Configuration (its sections, their form, earlier versions, settings in force) and Check. */
import { useState } from 'preact/hooks';
import { useAddress } from '../address.ts';
import { call } from '../api.ts';
import { toast } from '../parts/announce.tsx';
import { CodeBlock } from '../parts/code.tsx';
import { Confirm } from '../parts/confirm.tsx';
import { ErrorMessage, useAction } from '../parts/form.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { OpenButton, State, Time } from '../parts/values.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { DialogButton, Overlay } from '../parts/overlay.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type {
  ChangedConfig,
  CheckResponse,
  ConfigResponse,
  ConfigSection,
  ConfigSections,
} from '../shapes.ts';
import { type Schema, SchemaField, plainText } from './schema-form.tsx';

type Version = ConfigSections['versions'][number];

export function Configuration() {
  const config = useCall<ConfigResponse>('/admin/config');
  const sections = useCall<ConfigSections>('/admin/config/sections');
  const address = useAddress();
  const reload = (): void => {
    config.reload();
    sections.reload();
  };
  return (
    <>
      <PageHead title="Configuration" lead="The sections of the configuration file.">
        <button type="button" disabled={config.isLoading} onClick={reload}>
          Refresh
        </button>
      </PageHead>
      <Loaded from={sections}>
        {(data) => (
          <>
            {data.readOnly !== null && (
              <Notice tone="warn">
                <p>{data.readOnly}.</p>
              </Notice>
            )}
            <Loaded from={config}>{(found) => <ReloadNotice reload={found.reload} />}</Loaded>
            <Table
              label="Sections"
              rows={data.sections}
              keyOf={({ name }) => name}
              columns={sectionColumns(address.show)}
            />
            {data.versions.length > 0 && (
              <section>
                <h2>Earlier versions</h2>
                <Table
                  label="Earlier versions"
                  rows={data.versions}
                  keyOf={({ id }) => id}
                  columns={versionColumns(data, reload)}
                />
              </section>
            )}
            {address.open !== undefined && (
              <Overlay kind="drawer" title={`Section ${address.open}`} close={address.close}>
                <SectionEditor
                  key={address.open}
                  name={address.open}
                  isReadOnly={data.readOnly !== null}
                  done={() => {
                    address.close();
                    reload();
                  }}
                />
              </Overlay>
            )}
          </>
        )}
      </Loaded>
      <section>
        <h2>Settings in force</h2>
        <Loaded from={config}>
          {({ yaml }) => <CodeBlock title="With defaults; secrets are masked" text={yaml} />}
        </Loaded>
      </section>
    </>
  );
}

function sectionColumns(
  show: (name: string) => void,
): Column<ConfigSections['sections'][number]>[] {
  return [
    {
      name: 'Section',
      show: ({ name }) => <OpenButton open={() => show(name)}>{name}</OpenButton>,
    },
    {
      name: 'Content',
      kind: 'wide',
      show: ({ about }) => <span class="text">{plainText(about)}</span>,
    },
    { name: 'In the file', show: ({ isSet }) => (isSet ? 'Yes' : '–') },
    {
      name: 'A change applies',
      show: ({ needsRestart }) => (needsRestart ? 'After a restart' : 'At once'),
    },
  ];
}

function versionColumns(
  { digest, readOnly }: ConfigSections,
  restored: () => void,
): Column<Version>[] {
  return [
    { name: 'Replaced', show: ({ savedAt }) => <Time iso={savedAt} /> },
    { name: 'By a change of', show: ({ section }) => <code>{section}</code> },
    {
      name: 'Action',
      show: ({ id, section }) => (
        <DialogButton label="Restore" disabled={readOnly !== null}>
          {(close) => (
            <Confirm
              title="Restore this version?"
              label="Restore"
              notice="The configuration is restored."
              close={close}
              run={() => restore(id, digest)}
              done={() => {
                close();
                restored();
              }}
            >
              <p>
                The file becomes what it was before the change of <code>{section}</code>. The
                current text is kept as a version.
              </p>
            </Confirm>
          )}
        </DialogButton>
      ),
    },
  ];
}

async function restore(id: string, digest: string): Promise<void> {
  const path = `/admin/config/versions/${id}`;
  const { ok, problems } = await call<ChangedConfig>(path, { method: 'POST', body: { digest } });
  if (!ok) throw new Error(problems.join('\n'));
}

interface SectionEditorProps {
  readonly name: string;
  readonly isReadOnly: boolean;
  readonly done: () => void;
}

function SectionEditor(props: SectionEditorProps) {
  const section = useCall<ConfigSection>(`/admin/config/sections/${props.name}`);
  return <Loaded from={section}>{(data) => <SectionForm {...props} section={data} />}</Loaded>;
}

function SectionForm({
  name,
  isReadOnly,
  done,
  section,
}: SectionEditorProps & { readonly section: ConfigSection }) {
  const [value, setValue] = useState<unknown>(section.value ?? undefined);
  const [tried, setTried] = useState<ChangedConfig>();
  const action = useAction();
  const send = (isTrial: boolean): void => {
    void action.run(async () => {
      const result = await call<ChangedConfig>(`/admin/config/sections/${name}`, {
        method: 'PUT',
        body: { digest: section.digest, value: value ?? null, isTrial },
      });
      setTried(result);
      if (isTrial || !result.ok) return;
      toast(
        result.restart.length === 0
          ? 'The configuration is saved; the servers apply it within seconds.'
          : 'The configuration is saved. Restart the server to apply it.',
      );
      done();
    });
  };
  return (
    <>
      <p class="text">{plainText(section.about)}</p>
      <SchemaField
        name={name}
        schema={section.schema as Schema}
        value={value}
        onChange={(next) => {
          setValue(next);
          setTried(undefined);
        }}
      />
      {tried !== undefined && <Trial result={tried} />}
      <ErrorMessage error={action.error} />
      <p class="row end">
        <button type="button" disabled={action.isRunning || isReadOnly} onClick={() => send(true)}>
          Show the change
        </button>
        <button
          type="button"
          class="primary"
          disabled={action.isRunning || isReadOnly || tried?.ok !== true || tried.diff === ''}
          onClick={() => send(false)}
        >
          Save
        </button>
      </p>
    </>
  );
}

function Trial({ result: { ok, problems, diff, restart } }: { readonly result: ChangedConfig }) {
  if (!ok) {
    return (
      <Notice tone="bad">
        <p>The changed file would not be valid:</p>
        <Problems problems={problems} />
      </Notice>
    );
  }
  if (diff === '') return <Notice tone="good">This changes nothing in the file.</Notice>;
  return (
    <>
      {restart.length > 0 && (
        <Notice tone="warn">Applies after a restart: {restart.join(', ')}.</Notice>
      )}
      <CodeBlock title="Change of farebox.yaml" text={diff} />
    </>
  );
}

function Problems({ problems }: { readonly problems: readonly string[] }) {
  return (
    <ul>
      {problems.map((problem) => (
        <li key={problem} class="text">
          {problem}
        </li>
      ))}
    </ul>
  );
}

function ReloadNotice({
  reload: { ok, changed, restart, problems },
}: Pick<ConfigResponse, 'reload'>) {
  if (!ok) {
    return (
      <Notice tone="bad">
        <p>
          The configuration file is not valid. The server keeps the settings in force until you
          correct it:
        </p>
        <Problems problems={problems} />
      </Notice>
    );
  }
  if (changed.length === 0 && restart.length === 0) return null;
  return (
    <Notice tone="warn">
      {changed.length > 0 && <p>The file changes these sections: {changed.join(', ')}.</p>}
      {restart.length > 0 && <p>Restart the server to apply: {restart.join(', ')}.</p>}
    </Notice>
  );
}
export function Check() {
  const check = useCall<CheckResponse>('/admin/check');
  return (
    <>
      <PageHead
        title="Check"
        lead="The results of farebox check: database, engines, RPC nodes, web search and payments."
      >
        <button type="button" disabled={check.isLoading} onClick={check.reload}>
          {check.isLoading ? 'Checking…' : 'Run again'}
        </button>
      </PageHead>
      <Loaded from={check}>
        {({ ok, findings }) => (
          <>
            <p class={`verdict ${ok ? 'good' : 'bad'}`} role="status">
              {ok
                ? 'All checks passed.'
                : 'At least one check failed. Correct the lines marked wrong.'}
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
