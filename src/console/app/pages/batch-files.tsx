/** The files of batches: uploaded requests and results. */
import { call } from '../api.ts';
import { bytesText } from '../format.ts';
import { BASE } from '../page-facts.ts';
import type { CursorList } from '../cursor-list.ts';
import { Confirm } from '../parts/confirm.tsx';
import { DialogButton } from '../parts/overlay.tsx';
import { Id, Time } from '../parts/values.tsx';
import { type Column, CursorTable, aside, figure } from '../parts/table.tsx';
import type { StoredFile } from '../shapes.ts';

/** A time in Unix seconds. */
export function At({ seconds, ago = false }: { seconds: number | null; ago?: boolean }) {
  const iso = seconds === null ? null : new Date(seconds * 1_000).toISOString();
  return <Time iso={iso} ago={ago} />;
}

interface DownloadProps {
  readonly id: string;
  readonly name: string;
  readonly children: preact.ComponentChildren;
}

export function Download({ id, name, children }: DownloadProps) {
  return (
    <a
      class="button small"
      href={`${BASE}/files/${encodeURIComponent(id)}/content`}
      download={name}
    >
      {children}
    </a>
  );
}

const PURPOSES = { batch: 'requests', batch_output: 'results' } as const;

export function Files({ list }: { list: CursorList<StoredFile> }) {
  const columns: readonly Column<StoredFile>[] = [
    {
      name: 'File',
      show: ({ filename, purpose }) => (
        <>
          <span class="text">{filename}</span>
          <span class="under">{PURPOSES[purpose]}</span>
        </>
      ),
    },
    figure('Size', ({ bytes }) => bytesText(bytes)),
    { name: 'Created', kind: 'wide', show: ({ created_at: at }) => <At seconds={at} /> },
    { name: 'Expires', kind: 'wide', show: ({ expires_at: at }) => <At seconds={at} ago /> },
    aside('Id', ({ id }) => <Id value={id} ends={8} />),
    {
      name: 'Actions',
      kind: 'figure',
      show: (file) => (
        <span class="row end">
          <Download id={file.id} name={file.filename}>
            Download
          </Download>
          <DialogButton label="Delete" class="small danger">
            {(close) => (
              <Confirm
                title="Delete the file"
                label="Delete"
                notice="The file was deleted"
                close={close}
                run={() => call(`/files/${encodeURIComponent(file.id)}`, { method: 'DELETE' })}
                done={() => {
                  close();
                  list.first.reload();
                }}
              >
                <p>
                  Deletes <strong class="text">{file.filename}</strong> permanently. The server
                  keeps no other copy of the results of a batch.
                </p>
              </Confirm>
            )}
          </DialogButton>
        </span>
      ),
    },
  ];
  return (
    <section>
      <h2>Files</h2>
      <CursorTable
        label="Files"
        list={list}
        empty={null}
        columns={columns}
        keyOf={({ id }) => id}
      />
    </section>
  );
}
