"""Draw attention: figures, pages and the explorer.

| module | contents |
|---|---|
| `attend` | `AttendRequest` and `AttendResult`; show what models attend to in each input |
| `attend_files` | files of each input: figure, maps and their description |
| `attended_image` | an image with the attention of blocks or heads over it; default query points |
| `layer_views` | a transformer's layers and heads as views: the chosen ones, or a few of many |
| `block_figure` | figure of our blocks over an image, as in the paper |
| `layer_figure` | figure of a transformer's layers and heads over an image |
| `clip_figure` | figure of 3d blocks over the frames of a clip |
| `map_figure` | figure of `AttentionMaps`, with or without an image |
| `charts` | figures of numbers: profile of every head, overlaps, confusion matrix |
| `panels` | parts of figures: image panels, heat, query marks, legends; saving |
| `drawable` | base classes of results with ``show()``, ``save()`` and ``plot()``; figure of a prediction |
| `page/html` | content of the HTML page; `page.html`, `page.css` and `*.js` beside it draw it in a browser |
| `page/fit`, `page/grid` | the finest maps that fit in a page; their cells and 8-bit codes |
| `explorer` | what a pixel of an uploaded image attends to |
| `explorer_app` | the web application of `dnlnet explore`, and who may use it |
"""
